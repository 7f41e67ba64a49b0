#include "formats/safetensors.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <simdjson.h>

#include "base/check.h"
#include "base/json.h"
#include "formats/content_hash.h"
#include "io/file.h"

namespace nunspark {
namespace {

namespace od = simdjson::ondemand;

constexpr int64_t kLengthBytes = 8;
constexpr std::string_view kLfsStart = "version https://git-lfs.github.com/spec";

// Reads one header. The range of a tensor's data stays relative to the data until Finish.
class HeaderReader {
 public:
  HeaderReader(std::string_view header, int64_t file_bytes, std::string_view what)
      : header_(header), file_bytes_(file_bytes), what_(what) {}

  Result<std::vector<TensorInfo>> Read();

 private:
  struct Entry {
    std::optional<DType> dtype;
    std::vector<int64_t> shape;
    int64_t begin = 0;
    int64_t end = 0;
    bool has_shape = false;
    bool has_offsets = false;
  };

  Status Malformed(std::string_view reason) const {
    return DataLossError(fmt::format("{}: bad safetensors header: {}", what_, reason));
  }
  Status BadTensor(std::string_view name, std::string_view reason) const {
    return DataLossError(fmt::format("{}: tensor {}: {}", what_, QuoteName(name), reason));
  }

  template <typename T>
  Status Take(simdjson::simdjson_result<T> result, T& out) const {
    const simdjson::error_code error = std::move(result).get(out);
    return error == simdjson::SUCCESS ? Status() : Malformed(simdjson::error_message(error));
  }

  Status ReadMembers(od::object members);
  Status ReadMetadata(od::value value);
  Status ReadTensor(const std::string& name, od::value value);
  Status ReadField(const std::string& name, std::string_view key, od::value value, Entry& entry);
  Status ReadInts(const std::string& name, std::string_view key, od::value value, size_t limit,
                  std::vector<int64_t>& out);
  Status AddTensor(const std::string& name, Entry& entry);
  Status CheckNames() const;
  Status CheckRanges();

  std::string_view header_;
  int64_t file_bytes_;
  std::string_view what_;
  bool has_metadata_ = false;
  std::vector<TensorInfo> tensors_;
};

Result<std::vector<TensorInfo>> HeaderReader::Read() {
  if (!header_.starts_with('{')) return Malformed("expected a JSON object that begins with '{'");
  const simdjson::padded_string padded(header_);
  if (padded.data() == nullptr) return ResourceExhaustedError(fmt::format("{}: no memory for its header", what_));
  od::parser parser;
  od::document document;
  RETURN_IF_ERROR(Take(parser.iterate(padded), document));
  od::object members;
  RETURN_IF_ERROR(Take(document.get_object(), members));
  RETURN_IF_ERROR(ReadMembers(members));
  // The location is an error exactly when only white space is left.
  if (document.current_location().error() == simdjson::SUCCESS) return Malformed("text after the end of the object");
  RETURN_IF_ERROR(CheckNames());
  RETURN_IF_ERROR(CheckRanges());
  return std::move(tensors_);
}

Status HeaderReader::ReadMembers(od::object members) {
  for (auto member : members) {
    od::field field;
    RETURN_IF_ERROR(Take(std::move(member), field));
    std::string_view key;
    RETURN_IF_ERROR(Take(field.unescaped_key(), key));
    if (key == "__metadata__") {
      RETURN_IF_ERROR(ReadMetadata(field.value()));
    } else {
      if (tensors_.size() >= kMaxTensors) return Malformed(fmt::format("more than {} tensors", kMaxTensors));
      RETURN_IF_ERROR(ReadTensor(std::string(key), field.value()));
    }
  }
  return Status();
}

// A map of strings, by the format's definition; nothing in it is used.
Status HeaderReader::ReadMetadata(od::value value) {
  if (has_metadata_) return Malformed("\"__metadata__\" occurs twice");
  has_metadata_ = true;
  // MLX writes null when it has nothing to say.
  if (bool null = false; value.is_null().get(null) == simdjson::SUCCESS && null) return Status();
  od::object members;
  if (value.get_object().get(members) != simdjson::SUCCESS) return Malformed("\"__metadata__\": expected an object");
  for (auto member : members) {
    od::field field;
    RETURN_IF_ERROR(Take(std::move(member), field));
    std::string_view text;
    RETURN_IF_ERROR(Take(field.unescaped_key(), text));
    if (field.value().get_string().get(text) != simdjson::SUCCESS) {
      return Malformed("\"__metadata__\": expected an object of strings");
    }
  }
  return Status();
}

Status HeaderReader::ReadTensor(const std::string& name, od::value value) {
  od::object members;
  if (value.get_object().get(members) != simdjson::SUCCESS) {
    return BadTensor(name, "expected an object {dtype, shape, data_offsets}");
  }
  Entry entry;
  for (auto member : members) {
    od::field field;
    RETURN_IF_ERROR(Take(std::move(member), field));
    std::string_view key;
    RETURN_IF_ERROR(Take(field.unescaped_key(), key));
    RETURN_IF_ERROR(ReadField(name, key, field.value(), entry));
  }
  if (!entry.dtype.has_value()) return BadTensor(name, "\"dtype\" is missing");
  if (!entry.has_shape) return BadTensor(name, "\"shape\" is missing");
  if (!entry.has_offsets) return BadTensor(name, "\"data_offsets\" is missing");
  return AddTensor(name, entry);
}

Status HeaderReader::ReadField(const std::string& name, std::string_view key, od::value value, Entry& entry) {
  if (key == "dtype") {
    std::string_view type;
    if (value.get_string().get(type) != simdjson::SUCCESS) return BadTensor(name, "\"dtype\": expected a string");
    if (entry.dtype.has_value()) return BadTensor(name, "\"dtype\" occurs twice");
    entry.dtype = FindDType(type);
    if (entry.dtype.has_value()) return Status();
    return UnsupportedError(
        fmt::format("{}: tensor {}: element type {} is not known to this build (it knows F32, F16, "
                    "BF16, U8, U32, I32, I64 and a few by size)",
                    what_, QuoteName(name), QuoteName(type)));
  }
  if (key == "shape") {
    if (std::exchange(entry.has_shape, true)) return BadTensor(name, "\"shape\" occurs twice");
    return ReadInts(name, key, value, kMaxTensorRank, entry.shape);
  }
  if (key == "data_offsets") {
    if (std::exchange(entry.has_offsets, true)) return BadTensor(name, "\"data_offsets\" occurs twice");
    std::vector<int64_t> range;
    RETURN_IF_ERROR(ReadInts(name, key, value, 2, range));
    if (range.size() != 2) return BadTensor(name, "\"data_offsets\": expected [begin, end]");
    entry.begin = range[0];
    entry.end = range[1];
    return Status();
  }
  return BadTensor(name, fmt::format("unknown field {}; expected dtype, shape, data_offsets", QuoteName(key)));
}

Status HeaderReader::ReadInts(const std::string& name, std::string_view key, od::value value, size_t limit,
                              std::vector<int64_t>& out) {
  od::array items;
  if (value.get_array().get(items) != simdjson::SUCCESS) {
    return BadTensor(name, fmt::format("\"{}\": expected a list of integers", key));
  }
  for (auto item : items) {
    if (out.size() >= limit) return BadTensor(name, fmt::format("\"{}\": more than {} items", key, limit));
    int64_t number = 0;
    if (item.get_int64().get(number) != simdjson::SUCCESS || number < 0) {
      return BadTensor(name, fmt::format("\"{}\": expected integers from 0 to 2^63 - 1", key));
    }
    out.push_back(number);
  }
  return Status();
}

Status HeaderReader::AddTensor(const std::string& name, Entry& entry) {
  const std::optional<int64_t> bytes = TensorBytes(entry.shape, *entry.dtype);
  if (!bytes.has_value()) {
    return BadTensor(name, fmt::format("shape {} of {} has more bytes than a file can", ShapeText(entry.shape),
                                       DTypeName(*entry.dtype)));
  }
  if (entry.end < entry.begin) {
    return BadTensor(name, fmt::format("data_offsets [{}, {}] end before they begin", entry.begin, entry.end));
  }
  if (entry.end - entry.begin != *bytes) {
    return BadTensor(name, fmt::format("expected {} bytes for {} {}, found {} in data_offsets [{}, {}]", *bytes,
                                       DTypeName(*entry.dtype), ShapeText(entry.shape), entry.end - entry.begin,
                                       entry.begin, entry.end));
  }
  tensors_.push_back({.name = name,
                      .dtype = *entry.dtype,
                      .shape = std::move(entry.shape),
                      .file = 0,
                      .offset = entry.begin,
                      .bytes = *bytes});
  return Status();
}

Status HeaderReader::CheckNames() const {
  // Sorting, not hashing: hostile names could all share one hash.
  std::vector<std::string_view> names;
  names.reserve(tensors_.size());
  for (const TensorInfo& tensor : tensors_) names.push_back(tensor.name);
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  return twice == names.end() ? Status() : BadTensor(*twice, "the name occurs twice");
}

// The format wants the data covered without holes or overlaps, from its first byte to the end of the file. With the
// tensors in order of their offsets that is one comparison each.
Status HeaderReader::CheckRanges() {
  std::sort(tensors_.begin(), tensors_.end(), [](const TensorInfo& a, const TensorInfo& b) {
    return std::tie(a.offset, a.bytes) < std::tie(b.offset, b.bytes);
  });
  int64_t at = 0;
  for (const TensorInfo& tensor : tensors_) {
    if (tensor.offset != at) {
      return BadTensor(tensor.name, fmt::format("expected its data at offset {}, found {}: {}", at, tensor.offset,
                                                tensor.offset < at ? "it overlaps the tensor before it"
                                                                   : "there is a hole before it"));
    }
    at += tensor.bytes;  // no overflow: offset + bytes is data_offsets' end, an int64
  }
  const int64_t data_start = kLengthBytes + static_cast<int64_t>(header_.size());
  int64_t expected = 0;
  if (__builtin_add_overflow(data_start, at, &expected)) return Malformed("the data ends beyond 2^63");
  if (expected > file_bytes_) {
    return DataLossError(
        fmt::format("{} is truncated: expected {} bytes by its header, found {}", what_, expected, file_bytes_));
  }
  if (expected < file_bytes_) {
    return DataLossError(fmt::format("{}: expected {} bytes by its header, found {}: {} bytes belong to no tensor",
                                     what_, expected, file_bytes_, file_bytes_ - expected));
  }
  for (TensorInfo& tensor : tensors_) tensor.offset += data_start;
  return Status();
}

// Reads the JSON text of a file's header.
Result<std::string> ReadHeader(const File& file, int64_t file_bytes) {
  uint8_t start[64];
  const size_t start_bytes = static_cast<size_t>(std::min<int64_t>(file_bytes, sizeof start));
  RETURN_IF_ERROR(file.ReadAt(0, {start, start_bytes}));
  if (IsLfsPointer({reinterpret_cast<const char*>(start), start_bytes})) return LfsPointerError(file.path());
  if (file_bytes < kLengthBytes) {
    return DataLossError(fmt::format("{} is truncated: expected at least {} bytes of a safetensors file, found {}",
                                     file.path(), kLengthBytes, file_bytes));
  }
  uint64_t length = 0;
  for (int i = 0; i < kLengthBytes; ++i) length |= uint64_t{start[i]} << (8 * i);
  if (length > static_cast<uint64_t>(kMaxSafetensorsHeaderBytes)) {
    return DataLossError(fmt::format("{}: no safetensors file: its header would have {} bytes, expected at most {}",
                                     file.path(), length, kMaxSafetensorsHeaderBytes));
  }
  const int64_t header_bytes = static_cast<int64_t>(length);
  if (header_bytes > file_bytes - kLengthBytes) {
    return DataLossError(fmt::format("{} is truncated: expected at least {} bytes for its header, found {}",
                                     file.path(), header_bytes + kLengthBytes, file_bytes));
  }
  std::string header(length, '\0');
  RETURN_IF_ERROR(file.ReadAt(kLengthBytes, {reinterpret_cast<uint8_t*>(header.data()), header.size()}));
  return header;
}

}  // namespace

bool IsLfsPointer(std::string_view start_of_file) { return start_of_file.starts_with(kLfsStart); }

Status LfsPointerError(std::string_view path) {
  return DataLossError(
      fmt::format("{} is a Git LFS pointer, not the file itself; fetch it with 'git lfs pull' in its "
                  "folder, or download the file again",
                  path));
}

Result<std::vector<TensorInfo>> ParseSafetensorsHeader(std::string_view header, int64_t file_bytes,
                                                       std::string_view what) {
  if (header.size() > static_cast<size_t>(kMaxSafetensorsHeaderBytes)) {
    return DataLossError(fmt::format("{}: expected a header of at most {} bytes, found {}", what,
                                     kMaxSafetensorsHeaderBytes, header.size()));
  }
  return HeaderReader(header, file_bytes, what).Read();
}

Result<SafetensorsFile> ReadSafetensorsFile(const std::string& path) {
  SafetensorsFile result;
  ASSIGN_OR_RETURN(const File file, File::OpenRead(path));
  ASSIGN_OR_RETURN(const int64_t file_bytes, file.Size());
  ASSIGN_OR_RETURN(const std::string header, ReadHeader(file, file_bytes));
  ASSIGN_OR_RETURN(result.tensors, ParseSafetensorsHeader(header, file_bytes, path));
  result.source = {.path = path, .bytes = file_bytes, .header_hash = Hash64(header)};
  return result;
}

Status AddSafetensorsFile(const std::string& path, TensorIndex& index) {
  ASSIGN_OR_RETURN(SafetensorsFile file, ReadSafetensorsFile(path));
  const int32_t file_index = index.AddFile(std::move(file.source));
  for (TensorInfo& tensor : file.tensors) {
    tensor.file = file_index;
    RETURN_IF_ERROR(index.AddTensor(std::move(tensor)));
  }
  return Status();
}

std::string WriteSafetensorsHeader(const std::vector<TensorInfo>& tensors, int64_t alignment) {
  CHECK(alignment > 0 && alignment % kLengthBytes == 0);
  std::string text = "{";
  int64_t at = 0;
  for (const TensorInfo& tensor : tensors) {
    CHECK(TensorBytes(tensor.shape, tensor.dtype) == tensor.bytes);
    if (text.size() > 1) text += ',';
    text += fmt::format("{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}", JsonQuote(tensor.name),
                        DTypeName(tensor.dtype), fmt::join(tensor.shape, ","), at, at + tensor.bytes);
    at += tensor.bytes;
  }
  text += '}';
  const auto align = static_cast<size_t>(alignment);
  const size_t total = (kLengthBytes + text.size() + align - 1) / align * align;
  text.resize(total - kLengthBytes, ' ');
  std::string length;
  for (int i = 0; i < kLengthBytes; ++i) length += static_cast<char>(text.size() >> (8 * i) & 0xFF);
  return length + text;
}

}  // namespace nunspark
