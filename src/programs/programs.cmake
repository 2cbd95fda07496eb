# The programs: wiring only.  Each main file names the modules it wires.
function(program name)
	cmake_parse_arguments(P "" "MAIN" "USES;SOURCES" ${ARGN})
	string(REPLACE "-" "_" file ${name})
	if(P_MAIN)
		set(file ${P_MAIN})
	endif()
	if(EXISTS ${PROJECT_SOURCE_DIR}/src/programs/${file}.c)
		list(TRANSFORM P_SOURCES PREPEND ${PROJECT_SOURCE_DIR}/src/programs/)
		add_executable(${name} ${PROJECT_SOURCE_DIR}/src/programs/${file}.c ${P_SOURCES})
		target_link_libraries(${name} PRIVATE flags sanitize ${P_USES})
	endif()
endfunction()

program(sandboxd SOURCES standalone.c standalone_postgres.c supervise.c USES api reconcile region store http net domain base)
program(sandbox-region USES gateway http net base)
program(sandboxctl USES ctl net base)

# The agent is static, uses nothing of ours but include/, and is built without sanitizers.  Reading tar
# alone needs of libarchive.a only libacl.a beside it; writing is ours, since libarchive's writer would
# pull in every format (libxml2, ICU, a C++ run time).  Packages: libarchive-dev libacl1-dev libzstd-dev.
find_library(ARCHIVE_STATIC libarchive.a REQUIRED)
find_library(ACL_STATIC libacl.a REQUIRED)
find_library(ZSTD_STATIC libzstd.a REQUIRED)
file(GLOB agent_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/agent/*.c)
add_executable(sandbox-agent ${PROJECT_SOURCE_DIR}/src/programs/sandbox_agent.c ${agent_sources})
target_link_libraries(sandbox-agent PRIVATE flags ${ARCHIVE_STATIC} ${ZSTD_STATIC} ${ACL_STATIC})
target_link_options(sandbox-agent PRIVATE -static)

# What the region host puts into a sandbox beside the agent: the probe, and the cure of an old runsc.
add_executable(sandbox-probe ${PROJECT_SOURCE_DIR}/src/guest/probe.c ${PROJECT_SOURCE_DIR}/src/guest/isolation.c)
target_link_libraries(sandbox-probe PRIVATE flags)
target_link_options(sandbox-probe PRIVATE -static)
add_library(sandbox-statx SHARED ${PROJECT_SOURCE_DIR}/src/guest/statx.c)
target_link_libraries(sandbox-statx PRIVATE flags)
target_compile_options(sandbox-statx PRIVATE -fno-stack-protector -fno-builtin)
target_link_options(sandbox-statx PRIVATE -nostdlib)
set_target_properties(sandbox-statx PROPERTIES PREFIX "")

# The layer that s3fs loads: in another's process, so without sanitizers.
file(GLOB mount_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/mount/*.c)
add_library(fusemod_sbxnames MODULE ${mount_sources})
target_link_libraries(fusemod_sbxnames PRIVATE flags PkgConfig::FUSE)
