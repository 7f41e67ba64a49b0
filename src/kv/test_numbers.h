// Stored positions that are told by one number each, for tests.
#ifndef NUNSPARK_KV_TEST_NUMBERS_H_
#define NUNSPARK_KV_TEST_NUMBERS_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <iterator>
#include <vector>

#include "kernels/test_kv.h"
#include "kv/kv_cache.h"

namespace nunspark {

inline float ReadBack(const KvView& view, int head, int64_t position, int i, bool value) {
  const uint8_t* const block = (value ? view.value_blocks : view.key_blocks)[position / kKvBlockPositions];
  const int width = value ? view.value_width : view.key_dim;
  return StoredElement(view.format, width, value ? KvSide::kValues : KvSide::kKeys,
                       block + head * KvHeadBytes(view.format, width), position % kKvBlockPositions, i);
}

// The layers, with `format`.
inline std::vector<KvLayerShape> Stored(std::vector<KvLayerShape> layers, const KvFormat& format) {
  for (KvLayerShape& layer : layers) layer.format = format;
  return layers;
}

// Two layers of two heads, one with separate values and one whose values are part of the keys. A stored position is
// told by one number.
inline const std::vector<KvLayerShape> kPair =
    Stored({{2, 16, 16}, {.kv_heads = 2, .key_dim = 24, .value_dim = 16, .values = KvValues::kPartOfKeys}},
           {.type = FloatType::kF32});

inline void StoreNumber(KvSequence& sequence, int layer, int64_t position, float number) {
  const KvLayerShape& shape = sequence.pool().layers()[static_cast<size_t>(layer)];
  std::vector<float> keys, values;
  for (int i = 0; i < shape.kv_heads * shape.key_dim; ++i) {
    keys.push_back(number + static_cast<float>(layer) + static_cast<float>(i) / 64);
  }
  for (int i = 0; i < shape.kv_heads * shape.value_dim; ++i) values.push_back(-number - static_cast<float>(i) / 64);
  sequence.Store(layer, position, keys.data(), shape.values == KvValues::kSeparate ? values.data() : nullptr);
}

inline void StoreNumber(KvSequence& sequence, int64_t position, float number) {
  for (int layer = 0; layer < std::ssize(sequence.pool().layers()); ++layer) {
    StoreNumber(sequence, layer, position, number);
  }
}

inline void Extend(KvSequence& sequence, int64_t positions, float first) {
  const int64_t end = sequence.length() + positions;
  ASSERT_TRUE(sequence.Reserve(end).ok());
  for (int64_t p = sequence.length(); p < end; ++p) StoreNumber(sequence, p, first++);
  sequence.Commit(end);
}

inline void ExpectNumbers(const KvSequence& sequence, int layer, const std::vector<float>& numbers) {
  const KvLayerShape& shape = sequence.pool().layers()[static_cast<size_t>(layer)];
  const KvView view = sequence.View(layer);
  for (size_t p = 0; p < numbers.size(); ++p) {
    if (shape.window > 0 && p + static_cast<size_t>(shape.window) <= numbers.size()) continue;  // seen no more
    for (int head = 0; head < shape.kv_heads; ++head) {
      const int key_last = shape.key_dim - 1, value_last = shape.value_dim - 1;
      ASSERT_EQ(ReadBack(view, head, static_cast<int64_t>(p), key_last, false),
                numbers[p] + static_cast<float>(layer) + static_cast<float>(head * shape.key_dim + key_last) / 64)
          << layer << " " << p;
      if (shape.values == KvValues::kPartOfKeys) continue;
      ASSERT_EQ(ReadBack(view, head, static_cast<int64_t>(p), value_last, true),
                -numbers[p] - static_cast<float>(head * shape.value_dim + value_last) / 64)
          << layer << " " << p;
    }
  }
}

inline void ExpectNumbers(const KvSequence& sequence, const std::vector<float>& numbers) {
  ASSERT_EQ(sequence.length(), static_cast<int64_t>(numbers.size()));
  for (int layer = 0; layer < std::ssize(sequence.pool().layers()); ++layer) ExpectNumbers(sequence, layer, numbers);
}

inline std::vector<float> Numbers(float first, int count) {
  std::vector<float> numbers;
  for (int i = 0; i < count; ++i) numbers.push_back(first + static_cast<float>(i));
  return numbers;
}

}  // namespace nunspark

#endif  // NUNSPARK_KV_TEST_NUMBERS_H_
