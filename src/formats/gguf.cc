#include "formats/gguf.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <span>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "formats/content_hash.h"
#include "formats/safetensors.h"
#include "io/file.h"

namespace nunspark {
namespace {

constexpr std::string_view kMagic = "GGUF";
constexpr std::string_view kAlignmentKey = "general.alignment";
constexpr uint64_t kDefaultAlignment = 32;
constexpr size_t kWindowBytes = size_t{64} << 10;
// The least that a key (name length, type, one byte of value) and a tensor (name length, dimension count, type, offset)
// take: what bounds the counts of a header before anything is allocated for them.
constexpr uint64_t kMinKeyBytes = 8 + 4 + 1;
constexpr uint64_t kMinTensorBytes = 8 + 4 + 4 + 8;

static_assert(std::endian::native == std::endian::little, "scalars are read as they are in the file");

// The bytes of a file from its beginning, in order, through a window of fixed size.
class Input {
 public:
  Input(const File& file, int64_t file_bytes) : file_(&file), end_(file_bytes), buffer_(kWindowBytes) {}
  Input(std::string_view start, int64_t file_bytes)
      : start_(start), end_(std::min(file_bytes, static_cast<int64_t>(start.size()))) {}

  int64_t position() const { return window_offset_ + static_cast<int64_t>(at_); }
  // How many bytes can still be read.
  int64_t remaining() const { return end_ - position(); }

  // REQUIRES: out.size() <= remaining().
  Status Read(std::span<uint8_t> out) {
    while (!out.empty()) {
      if (at_ == window_.size()) RETURN_IF_ERROR(Refill());
      const size_t count = std::min(out.size(), window_.size() - at_);
      std::memcpy(out.data(), window_.data() + at_, count);
      at_ += count;
      out = out.subspan(count);
    }
    return Status();
  }

  // Of everything read so far.
  uint64_t Hash() {
    hash_.Update(window_.substr(hashed_, at_ - hashed_));
    hashed_ = at_;
    return Hash64(hash_.Hex());
  }

 private:
  Status Refill() {
    hash_.Update(window_.substr(hashed_));
    window_offset_ += static_cast<int64_t>(window_.size());
    const auto wanted = static_cast<size_t>(std::min<int64_t>(end_ - window_offset_, kWindowBytes));
    if (file_ != nullptr) {
      RETURN_IF_ERROR(file_->ReadAt(window_offset_, {buffer_.data(), wanted}));
      window_ = {reinterpret_cast<const char*>(buffer_.data()), wanted};
    } else {
      window_ = start_.substr(static_cast<size_t>(window_offset_), wanted);
    }
    at_ = 0;
    hashed_ = 0;
    return Status();
  }

  const File* file_ = nullptr;
  std::string_view start_;
  int64_t end_;
  std::vector<uint8_t> buffer_;
  std::string_view window_;
  int64_t window_offset_ = 0;
  size_t at_ = 0;
  size_t hashed_ = 0;  // bytes of the window that the hash has seen
  ContentHash hash_;
};

class HeaderReader {
 public:
  HeaderReader(Input& input, int64_t file_bytes, std::string_view what)
      : input_(input), file_bytes_(file_bytes), what_(what) {}

  Result<GgufFile> Read();

 private:
  Status Malformed(std::string_view reason) const {
    return DataLossError(fmt::format("{}: bad GGUF header: {}", what_, reason));
  }
  Status Bad(std::string_view kind, std::string_view name, std::string_view reason) const {
    return DataLossError(fmt::format("{}: {} {}: {}", what_, kind, QuoteName(name), reason));
  }

  // Whether `bytes` more can be read. `part` says of what, for the message.
  Status Expect(uint64_t bytes, std::string_view part) const;
  template <typename T>
  Status ReadScalar(T& out, std::string_view part);
  Status ReadBytes(uint64_t bytes, std::string_view part, std::string& out);
  Status ReadName(std::string_view kind, uint64_t number, std::string& out);
  Status ReadCounts();
  Status ReadKey(uint64_t number);
  Status ReadValue(const std::string& key, GgufValue& out);
  Status ReadScalars(const std::string& key, GgufType type, bool is_array, uint64_t count, GgufValue& out);
  Status ReadStrings(const std::string& key, bool is_array, uint64_t count, GgufValue& out);
  Status FindAlignment();
  Status ReadTensor(uint64_t number);
  Status SetSize(GgufTensor& tensor, uint64_t offset) const;
  Status CheckTensors();
  template <typename T>
  Status CheckNames(std::string_view kind, const std::vector<T>& entries) const;

  Input& input_;
  int64_t file_bytes_;
  std::string_view what_;
  uint64_t tensor_count_ = 0;
  uint64_t key_count_ = 0;
  uint64_t alignment_ = kDefaultAlignment;
  GgufFile file_;
};

Result<GgufFile> HeaderReader::Read() {
  RETURN_IF_ERROR(ReadCounts());
  for (uint64_t i = 0; i < key_count_; ++i) RETURN_IF_ERROR(ReadKey(i));
  RETURN_IF_ERROR(CheckNames("key", file_.keys));
  RETURN_IF_ERROR(FindAlignment());
  for (uint64_t i = 0; i < tensor_count_; ++i) RETURN_IF_ERROR(ReadTensor(i));
  RETURN_IF_ERROR(CheckNames("tensor", file_.tensors));
  RETURN_IF_ERROR(CheckTensors());
  file_.source.header_hash = input_.Hash();
  file_.source.path = std::string(what_);
  file_.source.bytes = file_bytes_;
  return std::move(file_);
}

Status HeaderReader::Expect(uint64_t bytes, std::string_view part) const {
  if (bytes > static_cast<uint64_t>(input_.remaining())) {
    return DataLossError(fmt::format("{} is truncated: expected {} bytes of {} at offset {}, found {}", what_, bytes,
                                     part, input_.position(), input_.remaining()));
  }
  const int64_t position = input_.position();
  if (position > kMaxGgufHeaderBytes || bytes > static_cast<uint64_t>(kMaxGgufHeaderBytes - position)) {
    return ResourceExhaustedError(
        fmt::format("{}: {} at offset {}: expected a header of at most {} bytes, found {} more", what_, part, position,
                    kMaxGgufHeaderBytes, bytes));
  }
  return Status();
}

template <typename T>
Status HeaderReader::ReadScalar(T& out, std::string_view part) {
  RETURN_IF_ERROR(Expect(sizeof(T), part));
  return input_.Read({reinterpret_cast<uint8_t*>(&out), sizeof(T)});
}

// Appends.
Status HeaderReader::ReadBytes(uint64_t bytes, std::string_view part, std::string& out) {
  RETURN_IF_ERROR(Expect(bytes, part));
  const size_t before = out.size();
  out.resize(before + bytes);
  return input_.Read({reinterpret_cast<uint8_t*>(out.data()) + before, static_cast<size_t>(bytes)});
}

Status HeaderReader::ReadName(std::string_view kind, uint64_t number, std::string& out) {
  uint64_t length = 0;
  RETURN_IF_ERROR(ReadScalar(length, kind));
  if (length == 0 || length > kMaxGgufNameBytes) {
    return Malformed(fmt::format("{} number {}: expected a name of 1 to {} bytes, found {}", kind, number,
                                 kMaxGgufNameBytes, length));
  }
  return ReadBytes(length, fmt::format("the name of {} number {}", kind, number), out);
}

Status HeaderReader::ReadCounts() {
  std::string magic;
  RETURN_IF_ERROR(ReadBytes(kMagic.size(), "a GGUF file", magic));
  if (magic != kMagic)
    return Malformed(fmt::format("expected the file to begin with \"GGUF\", found {}", QuoteName(magic)));
  uint32_t version = 0;
  RETURN_IF_ERROR(ReadScalar(version, "the version"));
  if (version == 1) {
    return UnsupportedError(fmt::format("{}: GGUF version 1; expected 2 or 3: convert the model again", what_));
  }
  if (const uint32_t swapped = __builtin_bswap32(version); swapped >= 1 && swapped <= 3) {
    return UnsupportedError(
        fmt::format("{}: a big-endian GGUF file (version {}); expected little-endian: convert the model "
                    "again without --bigendian",
                    what_, swapped));
  }
  if (version != 2 && version != 3) {
    return UnsupportedError(fmt::format("{}: GGUF version {}; expected 2 or 3", what_, version));
  }
  RETURN_IF_ERROR(ReadScalar(tensor_count_, "the tensor count"));
  RETURN_IF_ERROR(ReadScalar(key_count_, "the key count"));
  const auto check = [&](std::string_view kind, uint64_t count, uint64_t limit, uint64_t min_bytes) {
    if (count > limit) return Malformed(fmt::format("expected at most {} {}s, found {}", limit, kind, count));
    return Expect(count * min_bytes, fmt::format("{} {}s", count, kind));
  };
  RETURN_IF_ERROR(check("key", key_count_, kMaxGgufKeys, kMinKeyBytes));
  return check("tensor", tensor_count_, kMaxGgufTensors, kMinTensorBytes);
}

Status HeaderReader::ReadKey(uint64_t number) {
  GgufKey key;
  RETURN_IF_ERROR(ReadName("key", number, key.name));
  RETURN_IF_ERROR(ReadValue(key.name, key.value));
  file_.keys.push_back(std::move(key));
  return Status();
}

Status HeaderReader::ReadValue(const std::string& key, GgufValue& out) {
  const auto read_type = [&](GgufType& type) {
    uint32_t number = 0;
    RETURN_IF_ERROR(ReadScalar(number, fmt::format("the type of key {}", QuoteName(key))));
    if (number > static_cast<uint32_t>(GgufType::kF64)) {
      return Bad("key", key, fmt::format("expected a value type from 0 to 12, found {}", number));
    }
    type = static_cast<GgufType>(number);
    return Status();
  };
  GgufType type{};
  RETURN_IF_ERROR(read_type(type));
  uint64_t count = 1;
  const bool is_array = type == GgufType::kArray;
  if (is_array) {
    RETURN_IF_ERROR(read_type(type));
    if (type == GgufType::kArray) {
      return UnsupportedError(fmt::format("{}: key {}: an array of arrays; expected an array of numbers or strings",
                                          what_, QuoteName(key)));
    }
    RETURN_IF_ERROR(ReadScalar(count, fmt::format("the length of key {}", QuoteName(key))));
  }
  return type == GgufType::kString ? ReadStrings(key, is_array, count, out)
                                   : ReadScalars(key, type, is_array, count, out);
}

Status HeaderReader::ReadScalars(const std::string& key, GgufType type, bool is_array, uint64_t count, GgufValue& out) {
  uint64_t bytes = 0;
  if (__builtin_mul_overflow(count, GgufScalarBytes(type), &bytes)) {
    return Bad("key", key, fmt::format("an array of {} {} has more bytes than a file can", count, GgufTypeName(type)));
  }
  std::string data;
  RETURN_IF_ERROR(ReadBytes(bytes, fmt::format("key {}", QuoteName(key)), data));
  if (type == GgufType::kBool) {
    const auto wrong = std::find_if(data.begin(), data.end(), [](char byte) { return byte != 0 && byte != 1; });
    if (wrong != data.end()) {
      return Bad("key", key, fmt::format("expected 0 or 1 for a bool, found {}", static_cast<uint8_t>(*wrong)));
    }
  }
  out = GgufValue(type, is_array, std::move(data));
  return Status();
}

Status HeaderReader::ReadStrings(const std::string& key, bool is_array, uint64_t count, GgufValue& out) {
  const std::string part = fmt::format("key {}", QuoteName(key));
  uint64_t min_bytes = 0;
  if (__builtin_mul_overflow(count, sizeof(uint64_t), &min_bytes)) {
    return Bad("key", key, fmt::format("an array of {} strings has more bytes than a file can", count));
  }
  RETURN_IF_ERROR(Expect(min_bytes, part));
  std::string text;
  std::vector<uint32_t> ends;
  ends.reserve(count);
  for (uint64_t i = 0; i < count; ++i) {
    uint64_t length = 0;
    RETURN_IF_ERROR(ReadScalar(length, part));
    RETURN_IF_ERROR(ReadBytes(length, part, text));
    ends.push_back(static_cast<uint32_t>(text.size()));  // the header's limit is below 2^32
  }
  text.shrink_to_fit();
  out = GgufValue(is_array, std::move(text), std::move(ends));
  return Status();
}

Status HeaderReader::FindAlignment() {
  const GgufValue* const value = file_.Find(kAlignmentKey);
  if (value == nullptr) return Status();
  const std::optional<int64_t> number = value->is_array() ? std::nullopt : value->Int();
  // Beyond 1 MiB it would only be a way to claim a gigantic gap.
  constexpr int64_t kMaxAlignment = int64_t{1} << 20;
  if (!number.has_value() || *number < 1 || *number > kMaxAlignment ||
      !std::has_single_bit(static_cast<uint64_t>(*number))) {
    return Bad("key", kAlignmentKey,
               fmt::format("expected a power of two up to {}, found {}", kMaxAlignment,
                           number.has_value() ? fmt::format("{}", *number) : value->TypeName()));
  }
  alignment_ = static_cast<uint64_t>(*number);
  return Status();
}

Status HeaderReader::ReadTensor(uint64_t number) {
  GgufTensor tensor;
  RETURN_IF_ERROR(ReadName("tensor", number, tensor.name));
  const std::string part = fmt::format("the description of tensor {}", QuoteName(tensor.name));
  uint32_t dimensions = 0;
  RETURN_IF_ERROR(ReadScalar(dimensions, part));
  if (dimensions > kMaxGgufDimensions) {
    return Bad("tensor", tensor.name,
               fmt::format("expected at most {} dimensions, found {}", kMaxGgufDimensions, dimensions));
  }
  for (uint32_t i = 0; i < dimensions; ++i) {
    uint64_t dimension = 0;
    RETURN_IF_ERROR(ReadScalar(dimension, part));
    if (dimension == 0 || dimension > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return Bad("tensor", tensor.name,
                 fmt::format("dimension {}: expected 1 to 2^63 - 1 elements, found {}", i, dimension));
    }
    tensor.shape.push_back(static_cast<int64_t>(dimension));
  }
  std::reverse(tensor.shape.begin(), tensor.shape.end());
  uint32_t type = 0;
  RETURN_IF_ERROR(ReadScalar(type, part));
  tensor.type = FindGgufTensorType(type);
  if (tensor.type == nullptr) {
    return UnsupportedError(fmt::format("{}: tensor {}: no known tensor type has the number {}; expected one of {}",
                                        what_, QuoteName(tensor.name), type, SupportedGgufTypes()));
  }
  uint64_t offset = 0;
  RETURN_IF_ERROR(ReadScalar(offset, part));
  RETURN_IF_ERROR(SetSize(tensor, offset));
  file_.tensors.push_back(std::move(tensor));
  return Status();
}

// `offset` is relative to the data, whose place is known only after the last tensor's description.
Status HeaderReader::SetSize(GgufTensor& tensor, uint64_t offset) const {
  const int64_t block = tensor.type->block_elements;
  const int64_t columns = tensor.shape.empty() ? 1 : tensor.shape.back();
  if (columns % block != 0) {
    return Bad(
        "tensor", tensor.name,
        fmt::format("expected rows of a multiple of {} elements for {}, found {}", block, tensor.type->name, columns));
  }
  int64_t elements = 1;
  bool overflow = false;
  for (const int64_t dimension : tensor.shape) overflow |= __builtin_mul_overflow(elements, dimension, &elements);
  if (overflow || __builtin_mul_overflow(elements / block, tensor.type->block_bytes, &tensor.bytes)) {
    return Bad(
        "tensor", tensor.name,
        fmt::format("shape {} of {} has more bytes than a file can", ShapeText(tensor.shape), tensor.type->name));
  }
  if (offset % alignment_ != 0) {
    return Bad(
        "tensor", tensor.name,
        fmt::format("expected its data at a multiple of {} ({}), found offset {}", alignment_, kAlignmentKey, offset));
  }
  int64_t end = 0;
  if (offset > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()) ||
      __builtin_add_overflow(static_cast<int64_t>(offset), tensor.bytes, &end)) {
    return Bad("tensor", tensor.name, fmt::format("offset {} with {} bytes ends beyond 2^63", offset, tensor.bytes));
  }
  tensor.offset = static_cast<int64_t>(offset);
  return Status();
}

// Ranges: inside the file, no byte in two tensors. Space between them is allowed: writers align.
Status HeaderReader::CheckTensors() {
  const auto alignment = static_cast<int64_t>(alignment_);
  file_.data_offset = (input_.position() + alignment - 1) / alignment * alignment;
  std::sort(file_.tensors.begin(), file_.tensors.end(), [](const GgufTensor& a, const GgufTensor& b) {
    return std::tie(a.offset, a.bytes) < std::tie(b.offset, b.bytes);
  });
  int64_t at = 0;
  for (const GgufTensor& tensor : file_.tensors) {
    if (tensor.offset < at) {
      return Bad("tensor", tensor.name,
                 fmt::format("expected its data at offset {} or later, found {}: it overlaps the "
                             "tensor before it",
                             at, tensor.offset));
    }
    at = tensor.offset + tensor.bytes;
  }
  int64_t expected = 0;
  if (__builtin_add_overflow(file_.data_offset, at, &expected)) return Malformed("the data ends beyond 2^63");
  if (!file_.tensors.empty() && expected > file_bytes_) {
    return DataLossError(fmt::format("{} is truncated: expected {} bytes for tensor {}, found {}", what_, expected,
                                     QuoteName(file_.tensors.back().name), file_bytes_));
  }
  for (GgufTensor& tensor : file_.tensors) tensor.offset += file_.data_offset;
  return Status();
}

template <typename T>
Status HeaderReader::CheckNames(std::string_view kind, const std::vector<T>& entries) const {
  // Sorting, not hashing: hostile names could all share one hash.
  std::vector<std::string_view> names;
  names.reserve(entries.size());
  for (const T& entry : entries) names.push_back(entry.name);
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  return twice == names.end() ? Status() : Bad(kind, *twice, "the name occurs twice");
}

}  // namespace

Result<GgufFile> ReadGguf(const std::string& path) {
  ASSIGN_OR_RETURN(const File file, File::OpenRead(path));
  ASSIGN_OR_RETURN(const int64_t file_bytes, file.Size());
  char start[64];
  const size_t start_bytes = static_cast<size_t>(std::min<int64_t>(file_bytes, sizeof start));
  RETURN_IF_ERROR(file.ReadAt(0, {reinterpret_cast<uint8_t*>(start), start_bytes}));
  if (IsLfsPointer({start, start_bytes})) return LfsPointerError(path);
  Input input(file, file_bytes);
  return HeaderReader(input, file_bytes, path).Read();
}

Result<GgufFile> ParseGguf(std::string_view start, int64_t file_bytes, std::string_view what) {
  Input input(start, file_bytes);
  return HeaderReader(input, file_bytes, what).Read();
}

}  // namespace nunspark
