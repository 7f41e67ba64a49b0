# Cross compilation for 64-bit Arm with Debian's own cross compiler. Libraries of that architecture are unpacked below
# build/neon-sysroot (`./dev build neon` fetches them); the C and C++ libraries come with the compiler. Programs run
# under QEMU's user emulation, with every extension of the instruction set it knows.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)

set(sysroot ${CMAKE_CURRENT_LIST_DIR}/../build/neon-sysroot)
get_filename_component(sysroot ${sysroot} ABSOLUTE)
set(CMAKE_FIND_ROOT_PATH ${sysroot} /usr/aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)

# An empty path keeps pkg-config away from this machine's own libraries.
set(ENV{PKG_CONFIG_PATH} "")
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${sysroot})
set(ENV{PKG_CONFIG_LIBDIR} ${sysroot}/usr/lib/aarch64-linux-gnu/pkgconfig:${sysroot}/usr/share/pkgconfig)

set(CMAKE_CROSSCOMPILING_EMULATOR
  qemu-aarch64 -cpu max -L /usr/aarch64-linux-gnu -E LD_LIBRARY_PATH=${sysroot}/usr/lib/aarch64-linux-gnu)
