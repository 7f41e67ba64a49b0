#include "text/tokenizer/protobuf.h"

#include <bit>

namespace nunspark::text {
namespace {
constexpr int kVarintBytesMax = 10;
}  // namespace

float ProtoField::AsFloat() const { return std::bit_cast<float>(static_cast<uint32_t>(value)); }

std::optional<ProtoField> ProtoReader::Fail() {
  malformed_ = true;
  return std::nullopt;
}

std::optional<uint64_t> ProtoReader::Varint() {
  uint64_t value = 0;
  for (int i = 0; i < kVarintBytesMax && !rest_.empty(); ++i) {
    const uint8_t byte = static_cast<uint8_t>(rest_.front());
    rest_.remove_prefix(1);
    value |= static_cast<uint64_t>(byte & 0x7F) << (7 * i);
    if (byte < 0x80) return value;
  }
  return std::nullopt;
}

std::optional<ProtoField> ProtoReader::Next() {
  if (rest_.empty() || malformed_) return std::nullopt;
  const std::optional<uint64_t> tag = Varint();
  if (!tag.has_value() || *tag >> 3 == 0 || *tag >> 3 > UINT32_MAX) return Fail();
  ProtoField field;
  field.number = static_cast<uint32_t>(*tag >> 3);
  const auto fixed = [&](size_t size, ProtoField::Wire wire) -> std::optional<ProtoField> {
    if (rest_.size() < size) return Fail();
    field.wire = wire;
    for (size_t i = 0; i < size; ++i) {
      field.value |= static_cast<uint64_t>(static_cast<uint8_t>(rest_[i])) << (8 * i);
    }
    rest_.remove_prefix(size);
    return field;
  };
  switch (*tag & 7) {
    case 0: {
      const std::optional<uint64_t> value = Varint();
      if (!value.has_value()) return Fail();
      field.value = *value;
      return field;
    }
    case 1: return fixed(8, ProtoField::Wire::kFixed64);
    case 2: {
      const std::optional<uint64_t> size = Varint();
      if (!size.has_value() || *size > rest_.size()) return Fail();
      field.wire = ProtoField::Wire::kBytes;
      field.bytes = rest_.substr(0, *size);
      rest_.remove_prefix(*size);
      return field;
    }
    case 5: return fixed(4, ProtoField::Wire::kFixed32);
    default: return Fail();  // groups are not used by any model
  }
}

}  // namespace nunspark::text
