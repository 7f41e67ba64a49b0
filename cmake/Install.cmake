# `cmake --install`: the program, one static library of all folders up to engine and pack, its public headers, and the
# CMake package and pkg-config files that find it. tests/install_test builds a program against the result both ways.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(NUNSPARK_ZSH_FOLDER zsh/site-functions CACHE STRING "where zsh finds completions, below the folder of data")

# Target prefix of pkg_check_modules (cmake/Nunspark.cmake) = module name, for everything the archive needs.
set(NUNSPARK_PKG_CONFIG_PAIRS SIMDJSON=simdjson LIBURING=liburing HWY=libhwy UTF8PROC=libutf8proc
  ONIGURUMA=oniguruma XXHASH=libxxhash ZLIB=zlib)

set(objects)
set(modules)
foreach(folder ${NUNSPARK_LIBRARY_FOLDERS})
  if(TARGET nunspark_${folder})
    list(APPEND objects $<TARGET_OBJECTS:nunspark_${folder}>)
  endif()
endforeach()
set(NUNSPARK_PC_REQUIRES fmt)
foreach(pair ${NUNSPARK_PKG_CONFIG_PAIRS})
  string(REGEX MATCH "^[^=]+" prefix ${pair})
  list(APPEND modules PkgConfig::${prefix})
  string(REGEX MATCH "[^=]+$" module ${pair})
  string(APPEND NUNSPARK_PC_REQUIRES " ${module}")
endforeach()

# Built only by `cmake --install`'s default target and the tests that need it: an archive of objects that exist anyway.
add_library(nunspark_library STATIC ${objects})
set_target_properties(nunspark_library PROPERTIES OUTPUT_NAME nunspark EXPORT_NAME nunspark LINKER_LANGUAGE CXX)
target_compile_features(nunspark_library INTERFACE cxx_std_20)
target_include_directories(nunspark_library INTERFACE
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_link_libraries(nunspark_library PRIVATE ${modules} fmt::fmt Threads::Threads)

install(TARGETS nunspark_library EXPORT nunspark-targets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT nunspark-targets NAMESPACE nunspark:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/nunspark)
if(TARGET nunspark)
  install(TARGETS nunspark RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT program)
  # The program itself writes its manual pages and completions, from the tables of its flags.
  set(NUNSPARK_WRITTEN ${PROJECT_BINARY_DIR}/written)
  add_custom_command(OUTPUT ${NUNSPARK_WRITTEN}/_nunspark
    COMMAND ${CMAKE_COMMAND} -E rm -rf ${NUNSPARK_WRITTEN}
    COMMAND ${CMAKE_COMMAND} -E make_directory ${NUNSPARK_WRITTEN}/man1
    COMMAND nunspark man --out ${NUNSPARK_WRITTEN}/man1
    COMMAND nunspark completions bash > ${NUNSPARK_WRITTEN}/nunspark
    COMMAND nunspark completions fish > ${NUNSPARK_WRITTEN}/nunspark.fish
    COMMAND nunspark completions zsh > ${NUNSPARK_WRITTEN}/_nunspark
    DEPENDS nunspark VERBATIM)
  add_custom_target(nunspark_written ALL DEPENDS ${NUNSPARK_WRITTEN}/_nunspark)
  install(DIRECTORY ${NUNSPARK_WRITTEN}/man1 DESTINATION ${CMAKE_INSTALL_MANDIR} COMPONENT program)
  install(FILES ${NUNSPARK_WRITTEN}/nunspark DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions
    COMPONENT program)
  install(FILES ${NUNSPARK_WRITTEN}/nunspark.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d
    COMPONENT program)
  install(FILES ${NUNSPARK_WRITTEN}/_nunspark DESTINATION ${CMAKE_INSTALL_DATADIR}/${NUNSPARK_ZSH_FOLDER}
    COMPONENT program)
endif()
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/nunspark DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  FILES_MATCHING PATTERN "*.h")
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE ${PROJECT_SOURCE_DIR}/README.md DESTINATION ${CMAKE_INSTALL_DOCDIR}
  COMPONENT program)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/docs DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT program)

configure_package_config_file(cmake/nunspark-config.cmake.in ${PROJECT_BINARY_DIR}/nunspark-config.cmake
  INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/nunspark)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/nunspark-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/nunspark-config.cmake ${PROJECT_BINARY_DIR}/nunspark-config-version.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/nunspark)

# The .pc file finds its prefix from where it lies, so an installed tree may be moved.
file(RELATIVE_PATH NUNSPARK_PC_RELATIVE_PREFIX /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
configure_file(cmake/nunspark.pc.in ${PROJECT_BINARY_DIR}/nunspark.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/nunspark.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# `./dev package deb`, preset deb: the program, its documents and a service, below /usr. The library stays out; it is
# for `cmake --install`.
if(NUNSPARK_DEB)
  install(FILES packaging/systemd/nunspark.service DESTINATION lib/systemd/system COMPONENT program)
  install(FILES packaging/systemd/serve.conf DESTINATION /etc/nunspark COMPONENT program)
  set(control ${PROJECT_SOURCE_DIR}/packaging/debian)
  install(FILES ${control}/copyright DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT program)
  set(CPACK_GENERATOR DEB)
  set(CPACK_PACKAGE_NAME nunspark)
  set(CPACK_PACKAGE_CONTACT "The nunspark authors <maintainers@nunspark.invalid>")
  set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "runs language models larger than memory")
  set(CPACK_PACKAGE_DESCRIPTION "Streams the weights of a model from the drive as they are needed, under a memory
budget that is never exceeded: text generation, a server with OpenAI's and
Anthropic's HTTP API, batches, packing and measuring.")
  set(CPACK_PACKAGE_DIRECTORY ${PROJECT_SOURCE_DIR}/build/packages)
  set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
  set(CPACK_STRIP_FILES ON)
  set(CPACK_COMPONENTS_ALL program)
  set(CPACK_DEB_COMPONENT_INSTALL ON)
  set(CPACK_DEBIAN_PROGRAM_PACKAGE_NAME nunspark)
  set(CPACK_DEBIAN_PROGRAM_FILE_NAME DEB-DEFAULT)
  set(CPACK_DEBIAN_PROGRAM_PACKAGE_SECTION science)
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
  set(CPACK_DEBIAN_PROGRAM_PACKAGE_RECOMMENDS ca-certificates)
  set(CPACK_DEBIAN_PROGRAM_PACKAGE_CONTROL_EXTRA
    ${control}/conffiles ${control}/postinst ${control}/prerm ${control}/postrm)
  set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
  include(CPack)
endif()
