# Commit and version for `shiftron --version`: each build asks git for the commit; without git it is "unknown".
set(SHIFTRON_GENERATED ${PROJECT_BINARY_DIR}/generated)
add_custom_target(shiftron_commit
  COMMAND ${CMAKE_COMMAND} -D SOURCES=${PROJECT_SOURCE_DIR} -D HEADER=${SHIFTRON_GENERATED}/cli/commit.h -P ${PROJECT_SOURCE_DIR}/cmake/commit.cmake
  BYPRODUCTS ${SHIFTRON_GENERATED}/cli/commit.h COMMENT "" VERBATIM)
add_dependencies(shiftron_cli shiftron_commit)
set_source_files_properties(${PROJECT_SOURCE_DIR}/src/cli/version.cpp PROPERTIES
  SKIP_UNITY_BUILD_INCLUSION ON
  INCLUDE_DIRECTORIES ${SHIFTRON_GENERATED}
  COMPILE_DEFINITIONS "SHIFTRON_VERSION=\"${PROJECT_VERSION}\";SHIFTRON_BACKENDS=\"${SHIFTRON_BACKENDS}\"")
# Where `shiftron compare` finds its script if it is not installed.
set_source_files_properties(${PROJECT_SOURCE_DIR}/src/cli/compare.cpp PROPERTIES
  SKIP_UNITY_BUILD_INCLUSION ON
  COMPILE_DEFINITIONS "SHIFTRON_LAUNCH=\"${PROJECT_SOURCE_DIR}/launch\"")
