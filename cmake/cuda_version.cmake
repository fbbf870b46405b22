# What follows from a toolkit's version: the libraries' names and the architectures that its nvcc knows.

# MAJOR.MINOR of the toolkit whose cuda_runtime_api.h is in a folder.
function(shiftron_cuda_version include version)
  file(STRINGS ${include}/cuda_runtime_api.h line REGEX "^#define CUDART_VERSION +[0-9]+$")
  if(NOT line MATCHES "([0-9]+)$")
    message(FATAL_ERROR "${include}/cuda_runtime_api.h defines no CUDART_VERSION; name a CUDA toolkit with CUDA_HOME")
  endif()
  math(EXPR major "${CMAKE_MATCH_1} / 1000")
  math(EXPR minor "${CMAKE_MATCH_1} % 1000 / 10")
  set(${version} ${major}.${minor} PARENT_SCOPE)
endfunction()

# CMAKE_CUDA_ARCHITECTURES for a toolkit of this version: A100, H100 and H200, then B200 and compute capability 12.0.
function(shiftron_cuda_architectures version architectures)
  if(version VERSION_LESS 12.4 OR version VERSION_GREATER_EQUAL 14)
    message(FATAL_ERROR "found CUDA ${version}, but 12.4 to 13 are supported; name another toolkit with CUDA_HOME")
  endif()
  set(known 80 90)
  if(version VERSION_GREATER_EQUAL 12.8)
    list(APPEND known 100 120)
  endif()
  set(${architectures} ${known} PARENT_SCOPE)
endfunction()
