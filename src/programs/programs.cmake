# The programs: wiring only.  Each main file names the modules it wires.
function(program name)
	cmake_parse_arguments(P "" "" "USES;SOURCES" ${ARGN})
	string(REPLACE "-" "_" file ${name})
	if(EXISTS ${PROJECT_SOURCE_DIR}/src/programs/${file}.c)
		list(TRANSFORM P_SOURCES PREPEND ${PROJECT_SOURCE_DIR}/src/programs/)
		add_executable(${name} ${PROJECT_SOURCE_DIR}/src/programs/${file}.c ${P_SOURCES})
		target_link_libraries(${name} PRIVATE flags sanitize ${P_USES})
	endif()
endfunction()

program(sandboxd SOURCES standalone.c supervise.c USES api reconcile region store http net domain base)
program(sandbox-region USES gateway http net base)
program(sandboxctl USES ctl net base)

# The agent is static, uses nothing of ours but include/, and is built without sanitizers.  Debian's
# libarchive.a needs those of libacl1-dev, libbz2-dev, liblz4-dev, liblzma-dev, libxml2-dev,
# nettle-dev, zlib1g-dev and (for libxml2) libicu-dev; the linker takes what tar and zstd use.
file(GLOB agent_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/agent/*.c)
add_executable(sandbox-agent ${PROJECT_SOURCE_DIR}/src/programs/sandbox_agent.c ${agent_sources})
target_link_libraries(sandbox-agent PRIVATE flags)
target_link_options(sandbox-agent PRIVATE -static)
