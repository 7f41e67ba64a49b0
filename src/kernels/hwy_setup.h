// What the files that build tables over Highway have in common.
#ifndef NUNSPARK_KERNELS_HWY_SETUP_H_
#define NUNSPARK_KERNELS_HWY_SETUP_H_

// Kernels are built of many small functions that must keep their vectors in registers, and of short loops with constant
// counts that must disappear; but not with sanitizers, where building that takes many minutes.
#if !defined(NUNSPARK_INLINE)
#if defined(__clang__)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define NUNSPARK_INLINE inline
#define NUNSPARK_UNROLL
#else
#define NUNSPARK_INLINE inline __attribute__((always_inline))
#define NUNSPARK_UNROLL _Pragma("clang loop unroll(full)")
#endif
#else
#define NUNSPARK_INLINE inline __attribute__((always_inline))
#define NUNSPARK_UNROLL _Pragma("GCC unroll 16")
#endif
#endif

// What Highway calls AVX3_DL has VNNI.
#define HWY_WANT_AVX3_DL

// The extensions of that target. Highway 1.0.3 leaves out the one that it is for here.
#define NUNSPARK_VNNI_TARGET_STR \
  HWY_TARGET_STR_AVX3            \
  ",vpclmulqdq,avx512vbmi,avx512vbmi2,vaes,avxvnni,avx512bitalg,avx512vpopcntdq,avx512vnni"

#endif  // NUNSPARK_KERNELS_HWY_SETUP_H_
