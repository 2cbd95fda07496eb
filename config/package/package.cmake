# What `cmake --install` puts where, and the Debian packages that `cpack` makes of it:
#   sandboxd         the control plane and the standalone launcher
#   sandbox-region   the region host: gateway and agent
#   sandboxctl       the command line, its completion and manual page
install(TARGETS sandboxd RUNTIME DESTINATION bin COMPONENT server)
install(TARGETS sandbox-region RUNTIME DESTINATION bin COMPONENT region)
install(TARGETS sandbox-agent sandbox-probe RUNTIME DESTINATION lib/sandboxd COMPONENT region)
install(TARGETS sandbox-statx fusemod_sbxnames LIBRARY DESTINATION lib/sandboxd COMPONENT region)
install(TARGETS sandboxctl RUNTIME DESTINATION bin COMPONENT ctl)

# Printed from the program's own table of verbs.
set(pages ${PROJECT_BINARY_DIR}/pages)
add_custom_command(
	OUTPUT ${pages}/sandboxctl ${pages}/_sandboxctl ${pages}/sandboxctl.1
	COMMAND ${CMAKE_COMMAND} -E make_directory ${pages}
	COMMAND sandboxctl completion bash >${pages}/sandboxctl
	COMMAND sandboxctl completion zsh >${pages}/_sandboxctl
	COMMAND sandboxctl man >${pages}/sandboxctl.1
	DEPENDS sandboxctl)
add_custom_target(pages ALL DEPENDS ${pages}/sandboxctl ${pages}/_sandboxctl ${pages}/sandboxctl.1)
install(FILES ${pages}/sandboxctl DESTINATION share/bash-completion/completions COMPONENT ctl)
install(FILES ${pages}/_sandboxctl DESTINATION share/zsh/vendor-completions COMPONENT ctl)
install(FILES ${pages}/sandboxctl.1 DESTINATION share/man/man1 COMPONENT ctl)

set(units ${PROJECT_SOURCE_DIR}/config/systemd)
install(FILES ${units}/sandboxd.service ${units}/sandboxd-standalone.service DESTINATION lib/systemd/system
	COMPONENT server)
install(FILES ${units}/sandbox-region.service ${units}/sandboxd.slice DESTINATION lib/systemd/system COMPONENT region)
install(FILES ${PROJECT_SOURCE_DIR}/config/sandboxd.conf DESTINATION /etc/sandboxd COMPONENT server)
install(FILES ${PROJECT_SOURCE_DIR}/config/region.conf DESTINATION /etc/sandboxd COMPONENT region)
install(PROGRAMS ${PROJECT_SOURCE_DIR}/config/make-rootfs DESTINATION lib/sandboxd COMPONENT server)
foreach(component server region ctl)
	set(name_server sandboxd)
	set(name_region sandbox-region)
	set(name_ctl sandboxctl)
	install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION share/doc/${name_${component}} RENAME copyright
		COMPONENT ${component})
endforeach()
install(DIRECTORY ${PROJECT_SOURCE_DIR}/config/monitoring DESTINATION share/doc/sandboxd COMPONENT server)

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME sandboxd)
set(CPACK_PACKAGE_CONTACT "The sandboxd maintainers <maintainers@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "gVisor sandboxes for agents, over an HTTP API")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_COMPONENTS_ALL server region ctl)
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION admin)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)

set(scripts ${PROJECT_SOURCE_DIR}/config/package)
set(CPACK_DEBIAN_SERVER_PACKAGE_NAME sandboxd)
set(CPACK_COMPONENT_SERVER_DESCRIPTION "The control plane: lifecycle, API and reconciler, on PostgreSQL")
set(CPACK_DEBIAN_SERVER_PACKAGE_DEPENDS "passwd, ca-certificates")
set(CPACK_DEBIAN_SERVER_PACKAGE_RECOMMENDS "sandboxctl, postgresql")
set(CPACK_DEBIAN_SERVER_PACKAGE_SUGGESTS "sandbox-region")
set(CPACK_DEBIAN_SERVER_PACKAGE_CONTROL_EXTRA
	"${scripts}/server/postinst;${scripts}/server/prerm;${scripts}/server/postrm;${scripts}/server/conffiles")
set(CPACK_DEBIAN_REGION_PACKAGE_NAME sandbox-region)
set(CPACK_COMPONENT_REGION_DESCRIPTION "A region host: images, sandboxes, volumes and egress, with gVisor's runsc")
set(CPACK_DEBIAN_REGION_PACKAGE_DEPENDS
	"runsc, skopeo, umoci, iproute2, nftables, unbound, squid, util-linux, e2fsprogs, tar, zstd, ca-certificates")
set(CPACK_DEBIAN_REGION_PACKAGE_RECOMMENDS "s3fs, sandboxctl")
set(CPACK_DEBIAN_REGION_PACKAGE_CONTROL_EXTRA
	"${scripts}/region/postinst;${scripts}/region/prerm;${scripts}/region/postrm;${scripts}/region/conffiles")
set(CPACK_DEBIAN_CTL_PACKAGE_NAME sandboxctl)
set(CPACK_COMPONENT_CTL_DESCRIPTION "The command line of sandboxd, for operators and users")
include(CPack)
