# Man pages of shiftron, of each of its commands and of the installed commands of launch/, and bash's completion: made from the program's own table
# of commands (`shiftron --help json`) and from the --help of launch/.
find_package(Python3 3.8 REQUIRED COMPONENTS Interpreter)
set(pages ${PROJECT_BINARY_DIR}/pages)
list(TRANSFORM SHIFTRON_INSTALLED_COMMANDS PREPEND ${PROJECT_SOURCE_DIR}/launch/ OUTPUT_VARIABLE commands)
add_custom_command(OUTPUT ${pages}/made
  COMMAND ${Python3_EXECUTABLE} -B ${PROJECT_SOURCE_DIR}/cmake/pages.py $<TARGET_FILE:shiftron> ${pages} ${commands}
  COMMAND ${CMAKE_COMMAND} -E touch ${pages}/made
  DEPENDS shiftron ${PROJECT_SOURCE_DIR}/cmake/pages.py ${commands}
  COMMENT "Man pages and completion" VERBATIM)
add_custom_target(shiftron_pages ALL DEPENDS ${pages}/made)
install(DIRECTORY ${pages}/man1 DESTINATION ${CMAKE_INSTALL_MANDIR})
install(DIRECTORY ${pages}/completions DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion)
