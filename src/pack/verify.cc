#include "pack/verify.h"

#include <fcntl.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "base/mapped_memory.h"
#include "base/read_file.h"
#include "formats/checksums.h"
#include "formats/content_hash.h"
#include "formats/manifest.h"
#include "formats/safetensors.h"
#include "io/file.h"
#include "io/queue_file.h"
#include "pack/source_reader.h"

namespace nunspark {
namespace {

constexpr int64_t kBufferBytes = int64_t{8} << 20;

// Of memory and ranges for direct reads; records are aligned to it or to a multiple.
constexpr int64_t kDirectAlignment = kMinPackAlignment;

// A file of the pack. Records are read past the page cache where the file system allows it: that asks the drive, not
// the memory that may still hold what was meant to be written, and is faster.
struct PackFile {
  std::string name;
  int64_t bytes = 0;
  File buffered;
  File direct;  // closed where direct reads are refused

  Status Read(int64_t offset, std::span<uint8_t> out) const {
    const int64_t bits = offset | static_cast<int64_t>(out.size());
    if (direct.is_open() && bits % kDirectAlignment == 0) return direct.ReadAt(offset, out);
    RETURN_IF_ERROR(buffered.ReadAt(offset, out));
    DropFromCache(buffered, offset, static_cast<int64_t>(out.size()));
    return Status();
  }
};

class Verifier {
 public:
  // `buffer`: kBufferBytes.
  Verifier(const std::string& folder, const VerifyProgress& progress, MappedMemory buffer)
      : folder_(folder), progress_(progress), buffer_(std::move(buffer)) {}

  Result<VerifyReport> Run();

 private:
  void Problem(std::string_view file, std::string_view what, std::string_view expected, std::string_view found);
  Status ReadDescriptions();
  Status ReadManifest();
  void ReadChecksums();
  void CompareLists();
  void CheckCoverage(const std::string& name, int64_t bytes);
  Status CheckFile(const std::string& name);
  Status CheckStart(const PackFile& file, bool& intact);
  Status CheckRecords(const PackFile& file);
  void CheckHeader(const std::string& name, int64_t file_bytes);
  std::optional<int64_t> WholeSize(const std::string& name) const;
  Status Checksum(const PackFile& file, std::string_view what, int64_t offset, int64_t bytes, std::string_view expected,
                  bool& intact);

  const std::string& folder_;
  const VerifyProgress& progress_;
  const MappedMemory buffer_;
  std::vector<std::string> names_;  // what is in the folder
  std::optional<Manifest> manifest_;
  std::map<std::string, std::vector<const ManifestPiece*>> records_;  // file -> its records by offset
  std::map<std::string, int64_t> weight_bytes_;                       // file -> size by the manifest
  std::map<std::string, FileChecksum> checksums_;
  int64_t total_bytes_ = 0;
  VerifyReport report_;
};

Result<VerifyReport> Verifier::Run() {
  ASSIGN_OR_RETURN(names_, ListFolder(folder_));
  RETURN_IF_ERROR(ReadDescriptions());
  CompareLists();
  for (const std::string& name : names_) {
    if (FileExists(JoinPath(folder_, name))) RETURN_IF_ERROR(CheckFile(name));
  }
  return std::move(report_);
}

void Verifier::Problem(std::string_view file, std::string_view what, std::string_view expected,
                       std::string_view found) {
  ++report_.problem_count;
  if (report_.problems.size() >= kMaxVerifyProblems) return;
  report_.problems.push_back({std::string(file), std::string(what), std::string(expected), std::string(found)});
}

Status Verifier::ReadDescriptions() {
  const bool has_manifest = FileExists(JoinPath(folder_, kManifestFile));
  const bool has_checksums = FileExists(JoinPath(folder_, kChecksumsFile));
  if (!has_manifest && !has_checksums) {
    return NotFoundError(
        fmt::format("{} is no pack: it has neither {} nor {}", folder_, kManifestFile, kChecksumsFile));
  }
  if (has_manifest) RETURN_IF_ERROR(ReadManifest());
  if (has_checksums) ReadChecksums();
  for (const std::string_view name : {kManifestFile, kChecksumsFile}) {
    if (!std::binary_search(names_.begin(), names_.end(), name)) Problem(name, "file", "present", "missing");
  }
  return Status();
}

Status Verifier::ReadManifest() {
  const std::string path = JoinPath(folder_, kManifestFile);
  Result<std::string> text =
      ReadRegularFile(path, {.max_bytes = kMaxManifestBytes, .limit_reason = kManifestLimitReason});
  Result<Manifest> manifest = text.ok() ? ParseManifest(*text, path) : Result<Manifest>(text.status());
  if (!manifest.ok()) {
    // Another format is not damage - unless the checksum file says that this one was ours.
    if (manifest.status().code() == StatusCode::kUnsupported && !FileExists(JoinPath(folder_, kChecksumsFile))) {
      return manifest.status();
    }
    Problem(kManifestFile, "content", "a readable manifest", manifest.status().message());
    return Status();
  }
  manifest_ = std::move(manifest).value();
  for (const SourceFile& file : manifest_->files) weight_bytes_[file.path] = file.bytes;
  for (const ManifestPiece& piece : manifest_->pieces) {
    records_[manifest_->files[static_cast<size_t>(piece.file)].path].push_back(&piece);
  }
  for (auto& [name, records] : records_) {
    std::sort(records.begin(), records.end(),
              [](const ManifestPiece* a, const ManifestPiece* b) { return a->offset < b->offset; });
  }
  return Status();
}

void Verifier::ReadChecksums() {
  const std::string path = JoinPath(folder_, kChecksumsFile);
  const Result<std::string> text = ReadRegularFile(path);
  const Result<std::vector<FileChecksum>> files =
      text.ok() ? ParseChecksums(*text, path) : Result<std::vector<FileChecksum>>(text.status());
  if (!files.ok()) {
    Problem(kChecksumsFile, "content", "readable checksums with the right checksum of their own",
            files.status().message());
    return;
  }
  ++report_.files;
  report_.bytes += static_cast<int64_t>(text->size());
  for (const FileChecksum& file : *files) checksums_.emplace(file.name, file);
}

// Every file of the pack is there and covered, and nothing else is there.
void Verifier::CompareLists() {
  std::set<std::string> owned = {std::string(kManifestFile), std::string(kChecksumsFile)};
  for (const auto& [name, checksum] : checksums_) owned.insert(name);
  for (const auto& [name, bytes] : weight_bytes_) owned.insert(name);
  const std::set<std::string> found(names_.begin(), names_.end());
  for (const std::string& name : owned) {
    if (name == kManifestFile || name == kChecksumsFile) continue;  // reported already
    if (!found.contains(name)) Problem(name, "file", "present", "missing");
  }
  for (const std::string& name : names_) {
    if (!owned.contains(name)) {
      // Without both lists nobody can say what belongs to the pack.
      if (manifest_.has_value() && !checksums_.empty())
        Problem(name, "file", "only files of the pack", "an extra entry");
    } else if (!FileExists(JoinPath(folder_, name))) {
      Problem(name, "file", "a regular file", "something else");
    } else {
      total_bytes_ += WholeSize(name).value_or(0);
    }
  }
  if (!manifest_.has_value() || checksums_.empty()) return;
  for (const auto& [name, bytes] : weight_bytes_) CheckCoverage(name, records_.at(name).front()->offset);
  if (!checksums_.contains(std::string(kManifestFile))) {
    Problem(kChecksumsFile, "entry of " + std::string(kManifestFile), "present", "missing");
  }
}

// The checksum of a file with weights must reach exactly up to its first record.
void Verifier::CheckCoverage(const std::string& name, int64_t bytes) {
  const auto entry = checksums_.find(name);
  if (entry == checksums_.end()) {
    Problem(kChecksumsFile, "entry of " + name, "present", "missing");
  } else if (entry->second.bytes != bytes) {
    Problem(kChecksumsFile, "entry of " + name, fmt::format("{} bytes up to the first record", bytes),
            fmt::format("{} bytes", entry->second.bytes));
  }
}

// The size that a file should have; nullopt when nothing says.
std::optional<int64_t> Verifier::WholeSize(const std::string& name) const {
  if (const auto weights = weight_bytes_.find(name); weights != weight_bytes_.end()) return weights->second;
  // Without a manifest, an entry of a safetensors file says nothing about its whole size.
  const auto entry = checksums_.find(name);
  if (entry == checksums_.end() || (!manifest_.has_value() && name.ends_with(".safetensors"))) return std::nullopt;
  return entry->second.bytes;
}

Status Verifier::CheckFile(const std::string& name) {
  // The checksum file has been read and checked by itself already; the others are foreign.
  if (!checksums_.contains(name) && !weight_bytes_.contains(name)) return Status();
  ++report_.files;
  const std::string path = JoinPath(folder_, name);
  Result<File> opened = File::OpenRead(path);
  const Result<int64_t> bytes = opened.ok() ? opened->Size() : Result<int64_t>(opened.status());
  if (!bytes.ok()) {
    Problem(name, "file", "readable", bytes.status().message());
    return Status();
  }
  PackFile file{.name = name, .bytes = *bytes, .buffered = std::move(opened).value(), .direct = File()};
  // Whether the file system serves direct reads is decided once, by a read: later a direct read that fails is a
  // problem of the drive, and the page cache must not hide it.
  Result<std::vector<QueueFile>> probed = OpenQueueFiles({path}, DirectIo::kTry);
  if (probed.ok() && probed->front().direct) file.direct = std::move(probed->front().file);
  // What is read through the cache after all should come from the drive too.
  (void)::posix_fadvise(file.buffered.fd(), 0, 0, POSIX_FADV_DONTNEED);
  if (const std::optional<int64_t> whole = WholeSize(name); whole.has_value() && *whole != *bytes) {
    Problem(name, "size", fmt::format("{} bytes", *whole), fmt::format("{} bytes", *bytes));
  }
  bool intact = true;
  RETURN_IF_ERROR(CheckStart(file, intact));
  if (!weight_bytes_.contains(name)) return Status();
  if (intact) CheckHeader(name, *bytes);
  return CheckRecords(file);
}

Status Verifier::CheckStart(const PackFile& file, bool& intact) {
  const std::string& name = file.name;
  const auto entry = checksums_.find(name);
  if (entry == checksums_.end()) return Status();
  const bool header = weight_bytes_.contains(name);
  if (entry->second.bytes > file.bytes) {
    intact = false;
    // The size was reported already, when the manifest says it.
    if (!WholeSize(name).has_value()) {
      Problem(name, "size", fmt::format("at least {} bytes", entry->second.bytes), fmt::format("{} bytes", file.bytes));
    }
    return Status();
  }
  return Checksum(file, header ? "header" : "content", 0, entry->second.bytes, entry->second.checksum, intact);
}

Status Verifier::CheckRecords(const PackFile& file) {
  for (const ManifestPiece* record : records_.at(file.name)) {
    const std::string what = fmt::format("record of {} at {}", record->piece_id, record->offset);
    if (record->offset + record->bytes > file.bytes) {
      Problem(file.name, what, fmt::format("{} bytes", record->bytes),
              fmt::format("{} bytes", std::max<int64_t>(file.bytes - record->offset, 0)));
      continue;
    }
    ++report_.pieces;
    bool intact = true;
    RETURN_IF_ERROR(Checksum(file, what, record->offset, record->bytes, record->checksum, intact));
  }
  return Status();
}

// The header and the manifest describe the same tensors. Only reached with a header that is as it was written, so a
// difference is a mistake of whoever wrote the pack.
void Verifier::CheckHeader(const std::string& name, int64_t file_bytes) {
  const auto planned = std::find_if(manifest_->files.begin(), manifest_->files.end(),
                                    [&](const SourceFile& file) { return file.path == name; });
  if (planned->bytes != file_bytes) return;
  const Result<SafetensorsFile> header = ReadSafetensorsFile(JoinPath(folder_, name));
  if (!header.ok()) return Problem(name, "header", "a readable safetensors header", header.status().message());
  if (header->source.header_hash != planned->header_hash) {
    return Problem(name, "header", fmt::format("hash {:016x} by the manifest", planned->header_hash),
                   fmt::format("{:016x}", header->source.header_hash));
  }
  std::vector<const TensorInfo*> tensors;
  for (const TensorInfo& tensor : header->tensors) {
    if (!tensor.name.starts_with(kGapPrefix)) tensors.push_back(&tensor);
  }
  size_t next = 0;
  for (const ManifestPiece* record : records_.at(name)) {
    for (const ManifestTensor& tensor : record->tensors) {
      const TensorInfo* const found = next < tensors.size() ? tensors[next++] : nullptr;
      if (found != nullptr && found->name == tensor.name && found->dtype == tensor.dtype &&
          found->shape == tensor.shape && found->offset == record->offset + tensor.offset) {
        continue;
      }
      return Problem(name, "header",
                     fmt::format("tensor {} {} {} at {} by the manifest", tensor.name, DTypeName(tensor.dtype),
                                 ShapeText(tensor.shape), record->offset + tensor.offset),
                     found == nullptr ? "none"
                                      : fmt::format("{} {} {} at {}", QuoteName(found->name), DTypeName(found->dtype),
                                                    ShapeText(found->shape), found->offset));
    }
  }
  if (next != tensors.size()) {
    Problem(name, "header", fmt::format("{} tensors by the manifest", next), fmt::format("{}", tensors.size()));
  }
}

// Compares a range of a file. A range that cannot be read is a problem too; only a cancellation is an error.
Status Verifier::Checksum(const PackFile& file, std::string_view what, int64_t offset, int64_t bytes,
                          std::string_view expected, bool& intact) {
  ContentHash hash;
  for (int64_t done = 0; done < bytes;) {
    const int64_t part = std::min(bytes - done, kBufferBytes);
    const std::span<uint8_t> data(buffer_.data(), static_cast<size_t>(part));
    if (const Status read = file.Read(offset + done, data); !read.ok()) {
      intact = false;
      Problem(file.name, what, "readable", read.message());
      return Status();
    }
    hash.Update(data);
    done += part;
    report_.bytes += part;
    if (progress_ && !progress_(std::min(report_.bytes, total_bytes_), total_bytes_)) {
      return CancelledError("verifying was cancelled");
    }
  }
  if (hash.Checksum() == expected) return Status();
  intact = false;
  Problem(file.name, what, fmt::format("checksum {}", expected), hash.Checksum());
  return Status();
}

}  // namespace

std::string ProblemText(const VerifyProblem& problem) {
  return fmt::format("{}: {}: expected {}, found {}", problem.file, problem.what, problem.expected, problem.found);
}

Result<VerifyReport> Verify(const std::string& folder, const VerifyProgress& progress) {
  ASSIGN_OR_RETURN(MappedMemory buffer, MappedMemory::Create(kBufferBytes, "reading the pack", "free some memory"));
  return Verifier(folder, progress, std::move(buffer)).Run();
}

}  // namespace nunspark
