# A Debian package: `cmake --workflow --preset package`, or cpack -G DEB in a build folder. debian.cmake adds what only such a package has.
set(CPACK_PACKAGE_NAME shiftron)
set(CPACK_PACKAGE_VENDOR "The Shiftron developers")
set(CPACK_PACKAGE_CONTACT "The Shiftron developers <developers@shiftron.invalid>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "trains language models with KV shifting attention")
set(CPACK_PACKAGE_DESCRIPTION "Shiftron makes tokenizers and datasets, trains Llama-style language
models under MPI with tensor, pipeline and data parallelism, evaluates
them, generates text and exports to other formats.
Its checkpoints are layout-independent: a run resumes on any number
of ranks.")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(CPACK_PRE_BUILD_SCRIPTS ${PROJECT_SOURCE_DIR}/cmake/debian.cmake)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_DEPENDS "python3 (>= 3.8), openmpi-bin")
if(SHIFTRON_WITH_MPICH)
  set(CPACK_DEBIAN_PACKAGE_DEPENDS "python3 (>= 3.8), mpich")
endif()
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS gnuplot-nox)
set(CPACK_DEBIAN_PACKAGE_SUGGESTS slurm-client)
set(CPACK_PACKAGE_DIRECTORY ${PROJECT_BINARY_DIR})
include(CPack)
