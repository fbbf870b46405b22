# Builds with CUDA: src/<folder>/*_cuda.cu, compiled by nvcc against the toolkit, or by the C++ compiler against the machine of
# tests/machine/cuda, which needs the toolkit's headers alone and no GPU. Without SHIFTRON_CUDA nothing is looked for.
if(NOT SHIFTRON_CUDA MATCHES "^(machine|nvcc)$")
  message(FATAL_ERROR "SHIFTRON_CUDA is \"${SHIFTRON_CUDA}\"; it may be empty, machine or nvcc")
endif()
set(NVIDIA_WHEELS "$ENV{NVIDIA_WHEELS}" CACHE PATH
  "Where CUDA, cuDNN and NCCL are looked for behind the toolkit: site-packages/nvidia, as pip lays their wheels out")
set(toolkits ${CUDAToolkit_ROOT} $ENV{CUDA_HOME} /usr/local/cuda)
file(GLOB wheels ${NVIDIA_WHEELS}/*)

# shiftron_cuda_part(name header [library version]): adds the folder of the header to cuda_includes, and the library, which
# wheels hold under its version alone, to cuda_libraries.
macro(shiftron_cuda_part name header)
  find_path(${name}_INCLUDE ${header} HINTS ${toolkits} PATHS ${wheels} PATH_SUFFIXES include REQUIRED)
  list(APPEND cuda_includes ${${name}_INCLUDE})
  if(${ARGC} GREATER 2)
    find_library(${name}_LIBRARY NAMES ${ARGV2} lib${ARGV2}.so.${ARGV3} HINTS ${toolkits} PATHS ${wheels}
                 PATH_SUFFIXES lib lib64 REQUIRED)
    list(APPEND cuda_libraries ${${name}_LIBRARY})
  endif()
endmacro()

if(SHIFTRON_CUDA STREQUAL "nvcc")
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 80 90 100 120)
  endif()
  if(SHIFTRON_SANITIZE)
    message(FATAL_ERROR "SHIFTRON_SANITIZE is for SHIFTRON_CUDA=machine; nvcc knows no sanitizers")
  endif()
  find_program(CMAKE_CUDA_COMPILER nvcc HINTS ${toolkits} PATHS ${wheels} PATH_SUFFIXES bin REQUIRED)
  enable_language(CUDA)
  set(CMAKE_CUDA_STANDARD 20)
  set(CMAKE_CUDA_STANDARD_REQUIRED ON)
  set(CMAKE_CUDA_EXTENSIONS OFF)
  if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 does not know that nvcc has it
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  endif()
  if(CCACHE_PROGRAM)
    set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
  endif()
  get_directory_property(options COMPILE_OPTIONS)  # which nvcc does not know
  set_directory_properties(PROPERTIES COMPILE_OPTIONS
    "$<$<COMPILE_LANGUAGE:C,CXX>:${options}>;$<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr>")
  shiftron_cuda_part(CUDA cuda_runtime_api.h cudart 13)
  shiftron_cuda_part(CUBLAS cublasLt.h cublasLt 13)
  shiftron_cuda_part(CUDNN cudnn.h cudnn 9)
  shiftron_cuda_part(NCCL nccl.h nccl 2)
else()
  if(NOT SHIFTRON_TESTS)
    message(FATAL_ERROR "SHIFTRON_CUDA=machine needs the machine of SHIFTRON_TESTS=ON")
  endif()
  shiftron_cuda_part(CUDA cuda_runtime_api.h)
  shiftron_cuda_part(CUBLAS cublasLt.h)
  shiftron_cuda_part(CUDNN cudnn.h)
  shiftron_cuda_part(NCCL nccl.h)
  find_library(BOOST_CONTEXT_LIBRARY boost_context REQUIRED)  # of libboost-context-dev
  set(cuda_libraries shiftron_cuda_machine)
endif()
list(REMOVE_DUPLICATES cuda_includes)
add_compile_definitions(SHIFTRON_CUDA)
message(STATUS "shiftron's CUDA sources are compiled for: ${SHIFTRON_CUDA}")

# The CUDA sources of a folder, if it has any.
function(shiftron_cuda_folder name)
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/${name}/*_cuda.cu)
  if(sources)
    target_sources(shiftron_${name} PRIVATE ${sources})
    target_link_libraries(shiftron_${name} PUBLIC ${cuda_libraries})
    if(SHIFTRON_CUDA STREQUAL "machine")
      set_source_files_properties(${sources} PROPERTIES LANGUAGE CXX)
    else()
      target_include_directories(shiftron_${name} SYSTEM PUBLIC ${cuda_includes})
    endif()
  endif()
endfunction()

# The machine in place of CUDA's libraries; it and the folders need each other. Not instrumented, as it states its order
# itself.
if(SHIFTRON_CUDA STREQUAL "machine")
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/machine/cuda/*.cpp)
  list(FILTER sources EXCLUDE REGEX "_test\\.cpp$")
  add_library(shiftron_cuda_machine STATIC ${sources})
  target_include_directories(shiftron_cuda_machine PUBLIC ${PROJECT_SOURCE_DIR}/tests/machine)
  target_include_directories(shiftron_cuda_machine SYSTEM PUBLIC ${cuda_includes})
  target_link_libraries(shiftron_cuda_machine PUBLIC shiftron_machine ${BOOST_CONTEXT_LIBRARY} PRIVATE shiftron::json)
  if(SHIFTRON_SANITIZE STREQUAL "thread")
    target_compile_options(shiftron_cuda_machine PRIVATE -fno-sanitize=thread)
  endif()
endif()
