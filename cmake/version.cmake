# Commit and version for `shiftron --version`; a new commit configures again, a tree without git says "unknown".
set(SHIFTRON_COMMIT "unknown")
find_program(GIT_PROGRAM git)
if(GIT_PROGRAM)
  function(shiftron_git output)
    execute_process(COMMAND ${GIT_PROGRAM} ${ARGN} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR}
                    OUTPUT_VARIABLE text RESULT_VARIABLE code ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
    if(code EQUAL 0)
      set(${output} ${text} PARENT_SCOPE)
    endif()
  endfunction()
  # A copy of the sources inside another project's repository must not report that project's commit.
  shiftron_git(top rev-parse --show-toplevel)
  get_filename_component(here ${PROJECT_SOURCE_DIR} REALPATH)
  if(top STREQUAL here)
    shiftron_git(SHIFTRON_COMMIT rev-parse --short=12 HEAD)
    shiftron_git(log_of_head rev-parse --path-format=absolute --git-path logs/HEAD)
    if(log_of_head AND EXISTS ${log_of_head})
      set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${log_of_head})
    endif()
  endif()
endif()
set_source_files_properties(${PROJECT_SOURCE_DIR}/src/cli/version.cpp PROPERTIES COMPILE_DEFINITIONS
  "SHIFTRON_VERSION=\"${PROJECT_VERSION}\";SHIFTRON_COMMIT=\"${SHIFTRON_COMMIT}\";SHIFTRON_BACKENDS=\"${SHIFTRON_BACKENDS}\"")
