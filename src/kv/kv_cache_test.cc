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

// Layers of one model may differ: narrow and wide heads, values of another width, a latent that is both.
TEST(KvCache, LayersMayDifferInWidthAndShareKeysAndValues) {
  const std::vector<KvLayerShape> shapes = {{.kv_heads = 2, .key_dim = 16, .value_dim = 16},
                                            {.kv_heads = 3, .key_dim = 24, .value_dim = 8},
                                            {.kv_heads = 1, .key_dim = 7, .value_dim = 33},
                                            {1, 72, 64, KvValues::kPartOfKeys},
                                            {2, 20, 20, KvValues::kPartOfKeys}};
  const auto key_at = [](int64_t p, int64_t i) { return static_cast<float>(p * 1000 + i); };
  auto pool = KvPool::Create(shapes, FloatType::kF32, 70);
  ASSERT_TRUE(pool.ok());
  KvSequence sequence(**pool);
  ASSERT_TRUE(sequence.Reserve(70).ok());
  for (size_t layer = 0; layer < shapes.size(); ++layer) {
    const KvLayerShape& shape = shapes[layer];
    for (int64_t p = 0; p < 70; ++p) {
      std::vector<float> keys, values;
      for (int64_t i = 0; i < shape.kv_heads * shape.key_dim; ++i) keys.push_back(key_at(p, i));
      for (int64_t i = 0; i < shape.kv_heads * shape.value_dim; ++i) values.push_back(-key_at(p, i));
      const bool separate = shape.values == KvValues::kSeparate;
      sequence.Store(static_cast<int>(layer), p, keys.data(), separate ? values.data() : nullptr);
    }
  }
  for (size_t layer = 0; layer < shapes.size(); ++layer) {
    const KvLayerShape& shape = shapes[layer];
    const KvView view = sequence.View(static_cast<int>(layer));
    const bool latent = shape.values == KvValues::kPartOfKeys;
    EXPECT_EQ(view.key_blocks[1] == view.value_blocks[1], latent);
    EXPECT_EQ(view.value_stride, latent ? shape.key_dim : shape.value_dim);
    for (int head = 0; head < shape.kv_heads; ++head) {
      for (int64_t p : {0, 1, 63, 64, 69}) {
        for (int i = 0; i < shape.key_dim; ++i) {
          ASSERT_EQ(ReadBack(view, head, p, i, false), key_at(p, head * shape.key_dim + i)) << layer;
        }
        for (int i = 0; i < shape.value_dim; ++i) {
          const float expected = latent ? key_at(p, head * shape.key_dim + i) : -key_at(p, head * shape.value_dim + i);
          ASSERT_EQ(ReadBack(view, head, p, i, true), expected) << layer;
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

TEST(KvCache, ASequenceTakesNoMoreThanItsOwnMost) {
  auto pool = KvPool::Create({{1, 16, 16}}, FloatType::kF16, 256);
  ASSERT_TRUE(pool.ok());
  KvSequence first(**pool, 65);
  ASSERT_TRUE(first.Reserve(128).ok());
  EXPECT_NE(first.Reserve(129).message().find("128 planned"), std::string::npos);
  KvSequence second(**pool, 1000);
  EXPECT_TRUE(second.Reserve(128).ok());
  EXPECT_FALSE(second.Reserve(129).ok());
}

TEST(KvCache, PlansWhatItMaps) {
  const std::vector<KvLayerShape> shapes = {{2, 64, 64}, {2, 64, 64}};
  auto pool = KvPool::Create(shapes, FloatType::kF16, 100);
  ASSERT_TRUE(pool.ok());
  EXPECT_EQ((*pool)->bytes(), KvPool::PlanBytes(shapes, FloatType::kF16, 100));
  EXPECT_EQ((*pool)->bytes(), 2 * 2 * 2 * 2 * 64 * 64 * 2);
  // A latent is stored once.
  const std::vector<KvLayerShape> latent = {{1, 576, 512, KvValues::kPartOfKeys}};
  EXPECT_EQ(KvPool::PlanBytes(latent, FloatType::kF16, 100), 2 * 64 * 576 * 2);
  const std::vector<KvLayerShape> separate = {{1, 576, 512}};
  EXPECT_EQ(KvPool::PlanBytes(separate, FloatType::kF16, 100), 2 * 64 * (576 + 512) * 2);
  // Every layer costs what it holds, not what the largest one does.
  const std::vector<KvLayerShape> mixed = {{1, 576, 512}, {1, 16, 16}};
  EXPECT_EQ(KvPool::PlanBytes(mixed, FloatType::kF16, 100), 2 * 64 * (576 + 512 + 16 + 16) * 2);
}

}  // namespace
}  // namespace nunspark
