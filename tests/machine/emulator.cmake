# The emulator of a GPU and the machines that stand in for a device's streams, see README.md. Target `emulator`: its libraries and
# its own tests. They are not instrumented for ThreadSanitizer, because they state their order themselves.
file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/machine/*.cpp)
list(FILTER sources EXCLUDE REGEX "_test\\.cpp$")
add_library(shiftron_machine STATIC ${sources})
target_include_directories(shiftron_machine PUBLIC ${CMAKE_CURRENT_SOURCE_DIR})
target_link_libraries(shiftron_machine PUBLIC shiftron_core)
shiftron_compile_together(shiftron_machine)
shiftron_tests(machine shiftron_machine)
add_custom_target(emulator DEPENDS machine_tests)

# It replaces CUDA's libraries: the folders of src/ link it, and it links theirs.
if(SHIFTRON_CUDA STREQUAL "machine")
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/machine/cuda/*.cpp)
  list(FILTER sources EXCLUDE REGEX "_test\\.cpp$")
  add_library(shiftron_cuda_machine STATIC ${sources})
  target_include_directories(shiftron_cuda_machine PUBLIC ${CMAKE_CURRENT_SOURCE_DIR}/machine)
  target_include_directories(shiftron_cuda_machine SYSTEM PUBLIC ${cuda_includes})
  target_link_libraries(shiftron_cuda_machine PUBLIC shiftron_machine ${BOOST_CONTEXT_LIBRARY} PRIVATE shiftron::json)
  shiftron_tests(machine/cuda shiftron_evaluate)
  add_dependencies(emulator machine_cuda_tests)
  if(SHIFTRON_SANITIZE MATCHES "undefined")  # other tests do without it: these run kernels with injected faults
    target_compile_options(machine_cuda_tests PRIVATE -fsanitize=alignment)
  endif()
endif()

if(SHIFTRON_SANITIZE STREQUAL "thread")
  target_compile_options(shiftron_machine PRIVATE -fno-sanitize=thread)
  if(TARGET shiftron_cuda_machine)
    target_compile_options(shiftron_cuda_machine PRIVATE -fno-sanitize=thread)
  endif()
endif()
