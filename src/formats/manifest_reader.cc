// Reading manifest.json. The pieces and their tensors are nearly all of it, a hundred megabytes for a hundred thousand
// experts; they are walked where they stand in the text and never become a tree. The rest is small and does.
#include <algorithm>
#include <array>
#include <iterator>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <simdjson.h>

#include "base/json.h"
#include "base/read_file.h"
#include "formats/content_hash.h"
#include "formats/json_fields.h"
#include "formats/manifest.h"
#include "formats/manifest_members.h"

namespace nunspark {
namespace {

namespace od = simdjson::ondemand;

// Far above any real pack; a manifest that claims more is not worth the memory.
constexpr size_t kMaxFiles = 65536;
constexpr size_t kMaxPieces = size_t{1} << 22;
constexpr int64_t kMaxLayers = 65536;
constexpr size_t kMaxPieceIdBytes = 64;
constexpr size_t kMaxTensorNameBytes = 1024;
constexpr size_t kMaxHeadBytes = size_t{32} << 20;  // of all but the pieces: they become a tree, ten times as large
constexpr int64_t kMaxFileBytes = std::numeric_limits<int64_t>::max() - kMaxPackAlignment;

// The members of a piece and of a tensor, and their names in the same order.
enum PieceKey : size_t { kPieceId, kPieceFile, kPieceOffset, kPieceBytes, kPieceChecksum, kPieceTensors };
constexpr std::string_view kPieceKeys[] = {"piece_id", "file", "offset", "bytes", "checksum", "tensors"};
enum TensorKey : size_t { kTensorName, kTensorDType, kTensorShape, kTensorOffset, kTensorBytes };
constexpr std::string_view kTensorKeys[] = {"name", "dtype", "shape", "offset", "bytes"};

bool IsPieceId(std::string_view id) {
  return !id.empty() && id.size() <= kMaxPieceIdBytes &&
         id.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") == std::string_view::npos;
}

// The first repeated name, or an empty view. Names are compared only when two hashes are alike; and then sorted,
// because hostile names could all share one hash.
std::string_view FirstTwice(std::vector<std::string_view> names) {
  std::vector<uint64_t> hashes;
  hashes.reserve(names.size());
  for (const std::string_view name : names) hashes.push_back(Hash64(name));
  std::sort(hashes.begin(), hashes.end());
  if (std::adjacent_find(hashes.begin(), hashes.end()) == hashes.end()) return {};
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  return twice == names.end() ? std::string_view() : *twice;
}

class ManifestReader {
 public:
  // Tensors go to their piece, or, when there is a `tensors`, all into that.
  ManifestReader(std::string_view what, std::vector<TensorInfo>* tensors)
      : what_(what), tensors_(tensors), piece_members_(what, kPieceKeys), tensor_members_(what, kTensorKeys) {}

  // `text` has readable bytes behind it, as simdjson wants them: `capacity` counts from its beginning.
  Result<Manifest> Read(std::string_view text, size_t capacity);

 private:
  Status Bad(std::string_view reason) const { return DataLossError(fmt::format("{}: {}", what_, reason)); }
  Status BadJson(simdjson::error_code error) const { return ManifestJsonError(what_, error); }

  Result<std::string> FindPieces(std::string_view text, size_t capacity);
  Status CheckVersion(const Json& root);
  Result<bool> IsOriginal();
  Status ReadHead(const JsonFields& root);
  Status ReadFiles(const Json::Array& files);
  Status ReadPieces();
  Status ReadPiece(od::value value, size_t index);
  Status ReadTensors(od::array tensors, size_t index);
  Status ReadTensor(od::value value, ManifestPlace place);
  Result<std::vector<int64_t>> ReadShape();
  void Keep();
  Status CheckNames() const;
  Status CheckRecords() const;

  std::string_view what_;
  std::vector<TensorInfo>* tensors_;
  od::parser parser_;
  od::document document_;
  std::optional<od::array> pieces_;
  ManifestMembers piece_members_;
  ManifestMembers tensor_members_;
  ManifestPiece piece_;  // that is being read; its memory serves one after another
  size_t tensor_count_ = 0;
  Manifest manifest_;
};

Result<Manifest> ManifestReader::Read(std::string_view text, size_t capacity) {
  ASSIGN_OR_RETURN(const std::string rest, FindPieces(text, capacity));
  ASSIGN_OR_RETURN(const Json root, ParseJson(rest, what_));
  ASSIGN_OR_RETURN(const JsonFields fields, JsonFields::Of(root, what_, ""));
  RETURN_IF_ERROR(CheckVersion(root));
  RETURN_IF_ERROR(fields.RefuseOthers({"format_version", "model_type", "tie_word_embeddings", "num_layers", "alignment",
                                       "source_hash", "config", "files", "pieces"}));
  RETURN_IF_ERROR(ReadHead(fields));
  ASSIGN_OR_RETURN(const Json* const files, fields.Array("files"));
  RETURN_IF_ERROR(ReadFiles(files->as_array()));
  RETURN_IF_ERROR(fields.Array("pieces").status());
  RETURN_IF_ERROR(ReadPieces());
  RETURN_IF_ERROR(CheckNames());
  RETURN_IF_ERROR(CheckRecords());
  return std::move(manifest_);
}

// Finds the list of pieces, and returns the document with an empty list in its place.
Result<std::string> ManifestReader::FindPieces(std::string_view text, size_t capacity) {
  const simdjson::padded_string_view padded(text, capacity);
  if (const auto error = parser_.iterate(padded).get(document_)) return BadJson(error);
  od::json_type type = od::json_type::null;
  if (const auto error = document_.type().get(type)) return BadJson(error);
  if (type != od::json_type::object) {
    return Bad(fmt::format("expected an object, found {}", type == od::json_type::array ? "array" : "a single value"));
  }
  od::object root;
  if (const auto error = document_.get_object().get(root)) return BadJson(error);
  std::string_view before = text;
  std::string_view after;
  for (auto result : root) {
    od::field field;
    if (const auto error = std::move(result).get(field)) return BadJson(error);
    std::string_view key;
    if (const auto error = field.unescaped_key().get(key)) return BadJson(error);
    od::array list;
    if (key != "pieces" || field.value().get_array().get(list) != simdjson::SUCCESS) continue;
    if (pieces_.has_value()) return Bad("pieces: expected one such field, found a second one");
    pieces_ = list;
    std::string_view raw;
    if (const auto error = list.raw_json().get(raw)) return BadJson(error);
    const auto begin = static_cast<size_t>(raw.data() - text.data());
    before = text.substr(0, begin);
    after = text.substr(begin + raw.size());
  }
  if (before.size() + after.size() > kMaxHeadBytes) {
    return Bad(
        fmt::format("expected at most {} bytes beside the pieces, which is far more than a config and the names "
                    "of files have, found {}",
                    kMaxHeadBytes, before.size() + after.size()));
  }
  return fmt::format("{}{}{}", before, pieces_.has_value() ? "[]" : "", after);
}

// Before anything else: a manifest of another version need not have any other field in common with ours.
Status ManifestReader::CheckVersion(const Json& root) {
  const Json* const version = root.Find("format_version");
  if (version != nullptr && version->is_int() && version->as_int() != kPackFormatVersion) {
    return UnsupportedError(fmt::format("{}: pack format version {} is not known; this build reads version {}", what_,
                                        version->as_int(), kPackFormatVersion));
  }
  if (version != nullptr || !pieces_.has_value()) return Status();
  ASSIGN_OR_RETURN(const bool original, IsOriginal());
  if (!original) return Status();
  return UnsupportedError(fmt::format(
      "{}: this is the manifest of a pack of the original Nunspark (one file for each piece), not of pack version {}",
      what_, kPackFormatVersion));
}

// Whether the first piece has the members that one of the original's has.
Result<bool> ManifestReader::IsOriginal() {
  if (const auto error = pieces_->reset().error()) return BadJson(error);
  for (auto result : *pieces_) {
    od::object piece;
    if (std::move(result).get_object().get(piece) != simdjson::SUCCESS) return false;
    std::string_view text;
    if (const auto error = piece.raw_json().get(text)) return BadJson(error);
    ASSIGN_OR_RETURN(const Json tree, ParseJson(text, what_));
    return tree.Find("keys") != nullptr && tree.Find("file") != nullptr;
  }
  return false;
}

Status ManifestReader::ReadHead(const JsonFields& root) {
  ASSIGN_OR_RETURN(const int64_t version, root.Int("format_version", kPackFormatVersion, kPackFormatVersion));
  manifest_.format_version = static_cast<int>(version);
  ASSIGN_OR_RETURN(manifest_.model_type, root.String("model_type"));
  if (manifest_.model_type.empty()) return root.Wrong("model_type", "a model type", "an empty string");
  ASSIGN_OR_RETURN(manifest_.tie_word_embeddings, root.Bool("tie_word_embeddings"));
  ASSIGN_OR_RETURN(const int64_t layers, root.Int("num_layers", 1, kMaxLayers));
  manifest_.num_layers = static_cast<int>(layers);
  ASSIGN_OR_RETURN(manifest_.alignment, root.Int("alignment", kMinPackAlignment, kMaxPackAlignment));
  if ((manifest_.alignment & (manifest_.alignment - 1)) != 0) {
    return root.Wrong("alignment", "a power of two", fmt::format("{}", manifest_.alignment));
  }
  ASSIGN_OR_RETURN(manifest_.source_hash, root.String("source_hash"));
  if (!IsLowerHex(manifest_.source_hash, 32)) {
    return root.Wrong("source_hash", "32 lower-case hex digits", QuoteName(manifest_.source_hash));
  }
  ASSIGN_OR_RETURN(const Json* const config, root.Object("config"));
  manifest_.config = *config;
  return Status();
}

Status ManifestReader::ReadFiles(const Json::Array& files) {
  if (files.empty() || files.size() > kMaxFiles) {
    return Bad(fmt::format("files: expected 1 to {} files, found {}", kMaxFiles, files.size()));
  }
  for (const Json& json : files) {
    ASSIGN_OR_RETURN(const JsonFields fields,
                     JsonFields::Of(json, what_, fmt::format("files[{}]", manifest_.files.size())));
    RETURN_IF_ERROR(fields.RefuseOthers({"name", "bytes", "header_hash"}));
    SourceFile file;
    ASSIGN_OR_RETURN(file.path, fields.String("name"));
    if (!IsPlainFileName(file.path) || !file.path.ends_with(".safetensors")) {
      return fields.Wrong("name", "a file name that ends in .safetensors, without folders", QuoteName(file.path));
    }
    ASSIGN_OR_RETURN(file.bytes, fields.Int("bytes", 1, kMaxFileBytes));
    ASSIGN_OR_RETURN(const std::string hash, fields.String("header_hash"));
    if (!IsLowerHex(hash, 16)) return fields.Wrong("header_hash", "16 lower-case hex digits", QuoteName(hash));
    file.header_hash = std::stoull(hash, nullptr, 16);
    manifest_.files.push_back(std::move(file));
  }
  return Status();
}

Status ManifestReader::ReadPieces() {
  if (const auto error = pieces_->reset().error()) return BadJson(error);
  size_t count = 0;
  for (auto result : *pieces_) {
    od::value value;
    if (const auto error = std::move(result).get(value)) return BadJson(error);
    if (count >= kMaxPieces) return Bad(fmt::format("pieces: expected 1 to {} pieces, found more", kMaxPieces));
    RETURN_IF_ERROR(ReadPiece(value, count++));
  }
  if (count == 0) return Bad(fmt::format("pieces: expected 1 to {} pieces, found 0", kMaxPieces));
  return Status();
}

Status ManifestReader::ReadPiece(od::value value, size_t index) {
  ManifestMembers& members = piece_members_;
  RETURN_IF_ERROR(members.Read(value, {.piece = index, .tensor = std::nullopt}));
  ASSIGN_OR_RETURN(const std::string_view id, members.String(kPieceId));
  if (!IsPieceId(id)) {
    return members.Wrong(kPieceId, fmt::format("1 to {} characters of a-z, 0-9 and _", kMaxPieceIdBytes),
                         QuoteName(id));
  }
  ASSIGN_OR_RETURN(const int64_t file, members.Int(kPieceFile, 0, static_cast<int64_t>(manifest_.files.size()) - 1));
  const int64_t file_bytes = manifest_.files[static_cast<size_t>(file)].bytes;
  // A header comes first, so no record can begin at 0.
  ASSIGN_OR_RETURN(const int64_t offset, members.Int(kPieceOffset, manifest_.alignment, file_bytes));
  ASSIGN_OR_RETURN(const int64_t bytes, members.Int(kPieceBytes, manifest_.alignment, file_bytes - offset));
  const auto multiple = [&] { return fmt::format("a multiple of the alignment {}", manifest_.alignment); };
  if (offset % manifest_.alignment != 0) return members.Wrong(kPieceOffset, multiple(), fmt::format("{}", offset));
  if (bytes % manifest_.alignment != 0) return members.Wrong(kPieceBytes, multiple(), fmt::format("{}", bytes));
  ASSIGN_OR_RETURN(const std::string_view checksum, members.String(kPieceChecksum));
  if (!IsChecksum(checksum)) {
    return members.Wrong(kPieceChecksum, "\"xxh3:\" and 32 lower-case hex digits", QuoteName(checksum));
  }
  ASSIGN_OR_RETURN(const od::array tensors, members.Array(kPieceTensors));
  piece_.piece_id = id;
  piece_.file = static_cast<int32_t>(file);
  piece_.offset = offset;
  piece_.bytes = bytes;
  piece_.checksum = checksum;
  piece_.tensors.clear();
  RETURN_IF_ERROR(ReadTensors(tensors, index));
  Keep();
  return Status();
}

Status ManifestReader::ReadTensors(od::array tensors, size_t index) {
  for (auto result : tensors) {
    od::value value;
    if (const auto error = std::move(result).get(value)) return BadJson(error);
    if (++tensor_count_ > kMaxTensors) return Bad(fmt::format("expected at most {} tensors, found more", kMaxTensors));
    RETURN_IF_ERROR(ReadTensor(value, {.piece = index, .tensor = piece_.tensors.size()}));
  }
  return Status();
}

Status ManifestReader::ReadTensor(od::value value, ManifestPlace place) {
  ManifestMembers& members = tensor_members_;
  RETURN_IF_ERROR(members.Read(value, place));
  ASSIGN_OR_RETURN(const std::string_view name, members.String(kTensorName));
  if (name.empty() || name.size() > kMaxTensorNameBytes || name.starts_with(kGapPrefix)) {
    return members.Wrong(kTensorName, fmt::format("a tensor's name of 1 to {} bytes", kMaxTensorNameBytes),
                         QuoteName(name));
  }
  ASSIGN_OR_RETURN(const std::string_view type, members.String(kTensorDType));
  const std::optional<DType> dtype = FindDType(type);
  if (!dtype.has_value()) return members.Wrong(kTensorDType, "an element type of safetensors", QuoteName(type));
  ASSIGN_OR_RETURN(std::vector<int64_t> shape, ReadShape());
  const std::optional<int64_t> expected = TensorBytes(shape, *dtype);
  if (!expected.has_value()) return members.Wrong(kTensorShape, "fewer than 2^63 bytes", ShapeText(shape));
  ASSIGN_OR_RETURN(const int64_t bytes, members.Int(kTensorBytes, *expected, *expected));
  ASSIGN_OR_RETURN(const int64_t offset, members.Int(kTensorOffset, 0, piece_.bytes));
  if (offset % kPackTensorAlignment != 0) {
    return members.Wrong(kTensorOffset, fmt::format("a multiple of {}", kPackTensorAlignment),
                         fmt::format("{}", offset));
  }
  if (bytes > piece_.bytes - offset) {
    return members.Wrong(kTensorBytes, fmt::format("at most {}, what the record has left", piece_.bytes - offset),
                         fmt::format("{}", bytes));
  }
  if (!piece_.tensors.empty()) {
    const int64_t end = piece_.tensors.back().offset + piece_.tensors.back().bytes;
    if (offset < end) {
      return members.Wrong(kTensorOffset, fmt::format("at least {}, the end of the tensor before it", end),
                           fmt::format("{}", offset));
    }
  }
  piece_.tensors.push_back(
      {.name = std::string(name), .dtype = *dtype, .shape = std::move(shape), .offset = offset, .bytes = bytes});
  return Status();
}

Result<std::vector<int64_t>> ManifestReader::ReadShape() {
  ASSIGN_OR_RETURN(od::array items, tensor_members_.Array(kTensorShape));
  std::array<int64_t, kMaxTensorRank> shape = {};
  size_t rank = 0;
  for (auto result : items) {
    od::value value;
    if (const auto error = std::move(result).get(value)) return BadJson(error);
    if (rank == kMaxTensorRank) {
      size_t found = 0;
      if (const auto error = items.reset().error()) return BadJson(error);
      if (const auto error = items.count_elements().get(found)) return BadJson(error);
      return tensor_members_.Wrong(kTensorShape, fmt::format("at most {} dimensions", kMaxTensorRank),
                                   fmt::format("{}", found));
    }
    if (value.get_int64().get(shape[rank]) != simdjson::SUCCESS) {
      ASSIGN_OR_RETURN(const std::string_view found, ManifestTypeName(what_, value));
      return tensor_members_.Wrong(kTensorShape, "integers from 0", found);
    }
    if (shape[rank] < 0) {
      return tensor_members_.Wrong(kTensorShape, "integers from 0", fmt::format("{}", shape[rank]));
    }
    ++rank;
  }
  return std::vector<int64_t>(shape.data(), shape.data() + rank);
}

// Puts the piece that was read where it belongs.
void ManifestReader::Keep() {
  ManifestPiece& kept = manifest_.pieces.emplace_back();
  kept.piece_id = piece_.piece_id;
  kept.file = piece_.file;
  kept.offset = piece_.offset;
  kept.bytes = piece_.bytes;
  if (tensors_ == nullptr) {
    kept.checksum = piece_.checksum;
    kept.tensors.assign(std::make_move_iterator(piece_.tensors.begin()), std::make_move_iterator(piece_.tensors.end()));
    return;
  }
  for (ManifestTensor& tensor : piece_.tensors) {
    tensors_->push_back({.name = std::move(tensor.name),
                         .dtype = tensor.dtype,
                         .shape = std::move(tensor.shape),
                         .file = piece_.file,
                         .offset = piece_.offset + tensor.offset,
                         .bytes = tensor.bytes});
  }
}

Status ManifestReader::CheckNames() const {
  std::vector<std::string_view> names;
  for (const SourceFile& file : manifest_.files) names.push_back(file.path);
  if (const std::string_view name = FirstTwice(std::move(names)); !name.empty()) {
    return Bad(fmt::format("files: expected every name once, found {} twice", QuoteName(name)));
  }
  names = {};
  names.reserve(tensor_count_);  // more than there are pieces
  for (const ManifestPiece& piece : manifest_.pieces) names.push_back(piece.piece_id);
  if (const std::string_view id = FirstTwice(std::move(names)); !id.empty()) {
    return Bad(fmt::format("pieces: expected every piece_id once, found {} twice", QuoteName(id)));
  }
  names = {};
  names.reserve(tensor_count_);
  if (tensors_ != nullptr) {
    for (const TensorInfo& tensor : *tensors_) names.push_back(tensor.name);
  }
  for (const ManifestPiece& piece : manifest_.pieces) {
    for (const ManifestTensor& tensor : piece.tensors) names.push_back(tensor.name);
  }
  if (const std::string_view name = FirstTwice(std::move(names)); !name.empty()) {
    return Bad(fmt::format("pieces: expected every tensor once, found {} twice", QuoteName(name)));
  }
  return Status();
}

// Records cover their file from the first record to the end, so that the checksums of the pieces leave no byte out;
// what comes before the first record is the header, which the checksum file covers.
Status ManifestReader::CheckRecords() const {
  std::vector<const ManifestPiece*> order;
  order.reserve(manifest_.pieces.size());
  for (const ManifestPiece& piece : manifest_.pieces) order.push_back(&piece);
  std::sort(order.begin(), order.end(), [](const ManifestPiece* a, const ManifestPiece* b) {
    return std::tie(a->file, a->offset) < std::tie(b->file, b->offset);
  });
  int32_t file = -1;
  int64_t end = 0;
  const auto check_end = [&]() {
    if (file < 0 || end == manifest_.files[static_cast<size_t>(file)].bytes) return Status();
    const SourceFile& source = manifest_.files[static_cast<size_t>(file)];
    return Bad(fmt::format("pieces: expected records up to the end of {} at {}, found the last one's end at {}",
                           source.path, source.bytes, end));
  };
  for (const ManifestPiece* piece : order) {
    if (piece->file != file) {
      RETURN_IF_ERROR(check_end());
      if (piece->file != file + 1) break;
      file = piece->file;
    } else if (piece->offset != end) {
      return Bad(fmt::format("pieces: expected the record of {} at {}, found {}: {}", piece->piece_id, end,
                             piece->offset,
                             piece->offset < end ? "it overlaps the one before it" : "there is a hole before it"));
    }
    end = piece->offset + piece->bytes;
  }
  RETURN_IF_ERROR(check_end());
  if (file + 1 != static_cast<int32_t>(manifest_.files.size())) {
    return Bad(fmt::format("files: {} holds no piece", manifest_.files[static_cast<size_t>(file) + 1].path));
  }
  return Status();
}

Result<Manifest> Parse(const std::string& text, std::string_view what, std::vector<TensorInfo>* tensors) {
  static_assert(kReadFilePadding >= simdjson::SIMDJSON_PADDING);
  if (text.capacity() - text.size() < kReadFilePadding) {
    std::string padded;
    padded.reserve(text.size() + kReadFilePadding);
    padded = text;
    return Parse(padded, what, tensors);
  }
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  const size_t skip = text.starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0;
  return ManifestReader(what, tensors).Read(std::string_view(text).substr(skip), text.capacity() - skip);
}

}  // namespace

Result<Manifest> ParseManifest(const std::string& text, std::string_view what) { return Parse(text, what, nullptr); }

Result<PackIndex> ParsePackIndex(const std::string& text, std::string_view what) {
  PackIndex index;
  ASSIGN_OR_RETURN(index.manifest, Parse(text, what, &index.tensors));
  index.manifest.pieces = {};
  return index;
}

}  // namespace nunspark
