// Reading protocol-buffer messages without a schema compiler: only what SentencePiece models need.
#ifndef NUNSPARK_TEXT_TOKENIZER_PROTOBUF_H_
#define NUNSPARK_TEXT_TOKENIZER_PROTOBUF_H_

#include <cstdint>
#include <optional>
#include <string_view>

namespace nunspark::text {

// One field of a message.
struct ProtoField {
  enum class Wire { kVarint, kFixed64, kBytes, kFixed32 };

  uint32_t number = 0;
  Wire wire = Wire::kVarint;
  uint64_t value = 0;      // of the three numeric kinds
  std::string_view bytes;  // of kBytes

  float AsFloat() const;  // REQUIRES: wire == kFixed32
  bool AsBool() const { return value != 0; }
};

// Walks over the fields of one message.
class ProtoReader {
 public:
  explicit ProtoReader(std::string_view message) : rest_(message) {}

  // The next field; nothing at the end and where the message is malformed.
  std::optional<ProtoField> Next();
  bool malformed() const { return malformed_; }

 private:
  std::optional<uint64_t> Varint();
  std::optional<ProtoField> Fail();

  std::string_view rest_;
  bool malformed_ = false;
};

}  // namespace nunspark::text

#endif  // NUNSPARK_TEXT_TOKENIZER_PROTOBUF_H_
