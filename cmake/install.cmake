# Installs PREFIX/bin/shiftron, and to PREFIX/share/shiftron the configurations and the scripts that start runs with that program.
include(GNUInstallDirs)
set_target_properties(shiftron PROPERTIES INSTALL_RPATH_USE_LINK_PATH ON)  # finds libraries in other folders, as the build does
install(TARGETS shiftron RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(DIRECTORY configs DESTINATION ${CMAKE_INSTALL_DATADIR}/shiftron)
install(PROGRAMS launch/local launch/slurm launch/draw-loss DESTINATION ${CMAKE_INSTALL_DATADIR}/shiftron/launch)
install(FILES launch/foreign_text.py launch/job_folders.py launch/slurm-job.sh DESTINATION ${CMAKE_INSTALL_DATADIR}/shiftron/launch)
install(FILES launch/compare_runs.py launch/paired.py launch/picture.py launch/run_values.py launch/whole_file.py DESTINATION ${CMAKE_INSTALL_DATADIR}/shiftron/launch)
install(PROGRAMS launch/wandb DESTINATION ${CMAKE_INSTALL_DATADIR}/shiftron/launch)
