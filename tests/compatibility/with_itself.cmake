# Installs BUILD into a folder of its own below it, and runs TEST with that as the older and the newer one.
set(folder ${BUILD}/tests/compatibility/installed)
execute_process(COMMAND ${CMAKE_COMMAND} --install ${BUILD} --prefix ${folder} OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${PYTHON} -B ${TEST} ${folder} ${folder} COMMAND_ERROR_IS_FATAL ANY)
