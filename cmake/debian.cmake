# Run by CPack on the files of a Debian package: the copyright file, Debian's changelog, compressed man pages.
if(NOT CPACK_GENERATOR STREQUAL "DEB")
  return()
endif()
foreach(program file dpkg-shlibdeps)
  find_program(${program}_found ${program})
  if(NOT ${program}_found)
    message(FATAL_ERROR "the package cannot be made: there is no program ${program}\n  next: launch/install-deps --package")
  endif()
endforeach()
set(shared ${CPACK_TEMPORARY_DIRECTORY}${CPACK_PACKAGING_INSTALL_PREFIX}/share)
get_filename_component(packaging ${CMAKE_CURRENT_LIST_DIR}/../packaging ABSOLUTE)
file(COPY ${packaging}/copyright DESTINATION ${shared}/doc/shiftron FILE_PERMISSIONS OWNER_READ OWNER_WRITE GROUP_READ WORLD_READ)
string(TIMESTAMP date "%a, %d %b %Y %H:%M:%S +0000" UTC)
set(changelog ${shared}/doc/shiftron/changelog.Debian)
file(WRITE ${changelog} "shiftron (${CPACK_PACKAGE_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE}) unstable; urgency=medium

  * Version ${CPACK_PACKAGE_VERSION}: CHANGELOG.md says what is new.

 -- ${CPACK_PACKAGE_CONTACT}  ${date}
")
file(GLOB pages ${shared}/man/man1/*.1)
foreach(file ${changelog} ${pages})
  execute_process(COMMAND gzip -9nf ${file} COMMAND_ERROR_IS_FATAL ANY)
  file(CHMOD ${file}.gz PERMISSIONS OWNER_READ OWNER_WRITE GROUP_READ WORLD_READ)
endforeach()
