// Typed look-ups in a GGUF file's metadata, with messages that name file, key, expected and found.
#ifndef NUNSPARK_FORMATS_GGUF_KEYS_H_
#define NUNSPARK_FORMATS_GGUF_KEYS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/gguf.h"
#include "nunspark/status.h"

namespace nunspark {

// A view of a file, which must outlive it. Look-ups of a key that is not there give nothing; all errors are kDataLoss.
class GgufKeys {
 public:
  explicit GgufKeys(const GgufFile& file) : file_(&file) {}
  // With general.architecture. Errors: it is missing, or no word of letters, digits, '-', '_' and '.'.
  static Result<GgufKeys> Of(const GgufFile& file);

  const std::string& architecture() const { return architecture_; }
  const std::string& what() const { return file_->source.path; }
  std::string Name(std::string_view key) const;  // "<architecture>.<key>"

  const GgufValue* Find(std::string_view key) const { return file_->Find(key); }
  Result<std::optional<int64_t>> Int(std::string_view key, int64_t min, int64_t max) const;
  Result<std::optional<double>> Number(std::string_view key) const;  // finite; integers too
  Result<std::vector<double>> Numbers(std::string_view key) const;   // an array; empty when there is none
  Result<std::optional<bool>> Flag(std::string_view key) const;
  Result<std::string_view> Text(std::string_view key) const;                // empty when there is none
  Result<std::vector<std::string_view>> Texts(std::string_view key) const;  // an array; empty when there is none
  Result<std::string_view> Bytes(std::string_view key) const;  // an array of u8 or i8; empty when there is none

  Status Wrong(std::string_view key, std::string_view expected, std::string_view found) const;

 private:
  const GgufFile* file_;
  std::string architecture_;
};

}  // namespace nunspark

#endif  // NUNSPARK_FORMATS_GGUF_KEYS_H_
