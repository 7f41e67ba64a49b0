#include "kv/kv_cache.h"

#include <gtest/gtest.h>

#include <cstring>

namespace nunspark {
namespace {

float ReadBack(const KvView& view, int head, int64_t position, int i, bool value) {
  const uint8_t* const block = (value ? view.value_blocks : view.key_blocks)[position / kKvBlockPositions];
  const int64_t stride = value ? view.value_stride : view.key_dim;
  const int64_t at =
      ((int64_t{head} * kKvBlockPositions + position % kKvBlockPositions) * stride + i) * FloatBytes(view.type);
  float x = 0;
  Kernels().load_floats(block + at, view.type, 1, &x);
  return x;
}

TEST(KvCache, StoresEveryLayerHeadAndPosition) {
  const std::vector<KvLayerShape> shapes = {{2, 16, 16}, {1, 32, 32}};
  for (const FloatType type : {FloatType::kF32, FloatType::kF16, FloatType::kBF16}) {
    auto pool = KvPool::Create(shapes, type, 130);
    ASSERT_TRUE(pool.ok());
    KvSequence sequence(**pool);
    ASSERT_TRUE(sequence.Reserve(130).ok());
    for (int layer = 0; layer < 2; ++layer) {
      for (int64_t p = 0; p < 130; ++p) {
        std::vector<float> keys(32), values(32);
        for (int i = 0; i < 32; ++i) {
          keys[static_cast<size_t>(i)] = static_cast<float>(p % 100 + layer) + static_cast<float>(i) / 64;
          values[static_cast<size_t>(i)] = -keys[static_cast<size_t>(i)];
        }
        sequence.Store(layer, p, keys.data(), values.data());
      }
    }
    for (int layer = 0; layer < 2; ++layer) {
      const KvView view = sequence.View(layer);
      for (int64_t p = 0; p < 130; ++p) {
        for (int i = 0; i < 32; i += 16) {
          const float want = static_cast<float>(p % 100 + layer) + static_cast<float>(i) / 64;
          EXPECT_NEAR(ReadBack(view, i / view.key_dim, p, i % view.key_dim, false), want, want / 100);
          EXPECT_NEAR(ReadBack(view, i / view.value_dim, p, i % view.value_dim, true), -want, want / 100);
        }
      }
    }
  }
}

TEST(KvCache, RefusesMoreThanWasPlannedAndReusesTruncatedBlocks) {
  auto pool = KvPool::Create({{1, 16, 16}}, FloatType::kF16, 128);
  ASSERT_TRUE(pool.ok());
  KvSequence first(**pool);
  ASSERT_TRUE(first.Reserve(128).ok());
  KvSequence second(**pool);
  const Status refused = second.Reserve(1);
  EXPECT_EQ(refused.code(), StatusCode::kResourceExhausted);
  EXPECT_NE(refused.message().find("128 planned"), std::string::npos) << refused.message();
  first.Truncate(64);
  EXPECT_TRUE(second.Reserve(64).ok());
  EXPECT_FALSE(first.Reserve(65).ok());
  EXPECT_EQ((*pool)->used_peak_bytes(), (*pool)->bytes());
}

TEST(KvCache, PlansWhatItMaps) {
  const std::vector<KvLayerShape> shapes = {{2, 64, 64}, {2, 64, 64}};
  auto pool = KvPool::Create(shapes, FloatType::kF16, 100);
  ASSERT_TRUE(pool.ok());
  EXPECT_EQ((*pool)->bytes(), KvPool::PlanBytes(shapes, FloatType::kF16, 100));
  EXPECT_EQ((*pool)->bytes(), 2 * 2 * 2 * 2 * 64 * 64 * 2);
}

}  // namespace
}  // namespace nunspark
