# PREFIX/bin: shiftron and links shiftron-local, shiftron-slurm, … to the commands of PREFIX/share/shiftron/launch, which find that program.
# PREFIX/share: configurations, documents. Man pages and completion: pages.cmake.
include(GNUInstallDirs)
set_target_properties(shiftron PROPERTIES INSTALL_RPATH_USE_LINK_PATH ON)  # finds libraries in other folders, as the build does
install(TARGETS shiftron RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})

set(shared ${CMAKE_INSTALL_DATADIR}/shiftron)
install(DIRECTORY configs DESTINATION ${shared})
set(SHIFTRON_INSTALLED_COMMANDS local slurm seeds draw-loss)
if(EXISTS ${PROJECT_SOURCE_DIR}/launch/wandb)
  list(APPEND SHIFTRON_INSTALLED_COMMANDS wandb)
endif()
file(GLOB modules CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/launch/*.py)
list(FILTER modules EXCLUDE REGEX "/quick(start|_text)\\.py$")  # of the source tree alone
install(FILES ${modules} launch/slurm-job.sh DESTINATION ${shared}/launch)
foreach(command ${SHIFTRON_INSTALLED_COMMANDS})
  install(PROGRAMS launch/${command} DESTINATION ${shared}/launch)
  file(RELATIVE_PATH target /${CMAKE_INSTALL_BINDIR} /${shared}/launch/${command})
  set(link ${PROJECT_BINARY_DIR}/links/shiftron-${command})
  file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/links)
  file(CREATE_LINK ${target} ${link} SYMBOLIC)
  install(FILES ${link} DESTINATION ${CMAKE_INSTALL_BINDIR})
endforeach()

# As in the source tree, so that their links lead somewhere.
set(documents ${CMAKE_INSTALL_DATADIR}/doc/shiftron)
install(FILES README.md ARCHITECTURE.md CHANGELOG.md CITATION.cff CONTRIBUTING.md LICENSE NOTICE SECURITY.md DESTINATION ${documents})
install(DIRECTORY docs DESTINATION ${documents})
