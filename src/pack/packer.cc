#include "pack/packer.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "base/size.h"
#include "formats/checksums.h"
#include "formats/content_hash.h"
#include "formats/manifest.h"
#include "io/file.h"
#include "io/file_system.h"
#include "pack/journal.h"
#include "pack/output_file.h"
#include "pack/pack_folder.h"
#include "pack/pack_plan.h"
#include "pack/part_encoder.h"
#include "pack/part_order.h"
#include "pack/source_reader.h"

namespace nunspark {
namespace {

// What is read, hashed and written at a time.
constexpr int64_t kBufferBytes = int64_t{8} << 20;

// What is read and turned at a time.
constexpr int64_t kTurnBytes = int64_t{1} << 20;

// What is read ahead of its use.
constexpr int64_t kPrefetchBytes = int64_t{16} << 20;

// Work that a kill may cost: records are synced and entered into the journal in batches of about this size.
constexpr int64_t kBatchBytes = int64_t{256} << 20;

// A record on its way to the drive: its bytes gather in a buffer, which is hashed and written whenever it is full.
class RecordWriter {
 public:
  using OnWritten = std::function<Status(int64_t bytes)>;

  // The record begins at `offset` of `out`.
  RecordWriter(std::span<uint8_t> buffer, OutputFile& out, int64_t offset, OnWritten on_written)
      : buffer_(buffer), out_(out), offset_(offset), on_written_(std::move(on_written)) {}

  // Free room for the next bytes, at least one and at most `most`. They count once they are added.
  Result<std::span<uint8_t>> Room(int64_t most) {
    if (used_ == buffer_.size()) RETURN_IF_ERROR(Flush());
    return buffer_.subspan(used_, std::min(buffer_.size() - used_, static_cast<size_t>(most)));
  }
  void Add(size_t bytes) { used_ += bytes; }

  Status Append(std::span<const uint8_t> data) {
    while (!data.empty()) {
      ASSIGN_OR_RETURN(const std::span<uint8_t> room, Room(static_cast<int64_t>(data.size())));
      std::copy_n(data.begin(), room.size(), room.begin());
      Add(room.size());
      data = data.subspan(room.size());
    }
    return Status();
  }

  // Zeros, until the record has `bytes`.
  Status PadTo(int64_t bytes) {
    while (written_ + static_cast<int64_t>(used_) < bytes) {
      ASSIGN_OR_RETURN(const std::span<uint8_t> room, Room(bytes - written_ - static_cast<int64_t>(used_)));
      std::fill(room.begin(), room.end(), uint8_t{0});
      Add(room.size());
    }
    return Status();
  }

  // Writes the rest; returns the checksum of all.
  Result<std::string> Finish() {
    RETURN_IF_ERROR(Flush());
    return hash_.Checksum();
  }

 private:
  Status Flush() {
    const std::span<const uint8_t> data = buffer_.first(std::exchange(used_, 0));
    hash_.Update(data);
    RETURN_IF_ERROR(out_.WriteAt(offset_ + written_, data));
    written_ += static_cast<int64_t>(data.size());
    return on_written_(static_cast<int64_t>(data.size()));
  }

  const std::span<uint8_t> buffer_;
  OutputFile& out_;
  const int64_t offset_;
  const OnWritten on_written_;
  ContentHash hash_;
  size_t used_ = 0;      // of the buffer
  int64_t written_ = 0;  // of the record
};

// One run of the packer over a plan.
class PackRun {
 public:
  PackRun(const Checkpoint& checkpoint, const ModelLayout& layout, const PackOptions& options, const PackPaths& paths,
          PackPlan plan)
      : layout_(layout),
        options_(options),
        paths_(paths),
        source_folder_(checkpoint.folder),
        plan_(std::move(plan)),
        source_(checkpoint.tensors),
        buffer_(static_cast<size_t>(kBufferBytes)) {}

  // Everything up to the rename; errors leave the partial folder for the next run.
  Status Run();

  // After a failure: whether the partial folder holds anything worth keeping; removes it if not.
  bool KeepsWork();

  bool resumed() const { return resumed_; }
  const std::set<int32_t>& waiting_files() const { return waiting_files_; }
  int64_t bytes() const { return plan_.total_bytes; }

 private:
  Status OpenPartial();
  Status CleanUnfinished();
  Status CheckSpace() const;
  Status WriteWeights(int32_t file);
  void Prefetch(int32_t piece);
  Status WriteRecord(int32_t piece, OutputFile& out, std::string& checksum);
  Status CopyPart(const TensorSlice& part, RecordWriter& writer);
  Status TurnPart(const TensorSlice& part, const PartOrder& order, RecordWriter& writer);
  Status EncodePart(const TensorSlice& part, const PartEncoding& encoding, const std::optional<PartOrder>& order,
                    const ManifestTensor* tensors, RecordWriter& writer);
  Status FlushBatch(OutputFile& out);
  bool IsAvailable(int32_t piece) const;
  Status CopyFile(const FileChecksum& copy);
  Status WriteSmallFile(std::string_view name, std::string_view content);
  Status WriteDescriptions();
  Status Publish();
  Status Advance(int64_t bytes);

  const ModelLayout& layout_;
  const PackOptions& options_;
  const PackPaths& paths_;
  const std::string source_folder_;
  PackPlan plan_;
  SourceReader source_;
  std::unique_ptr<PartEncoder> encoder_;  // nullptr when nothing is encoded
  std::vector<uint8_t> buffer_;
  std::vector<uint8_t> turn_buffer_;  // empty until something is turned
  Journal journal_;
  std::vector<JournalEntry> batch_;  // written, not yet synced
  int64_t batch_bytes_ = 0;
  int64_t done_bytes_ = 0;
  bool resumed_ = false;
  std::set<int32_t> waiting_files_;
};

Status PackRun::Run() {
  if (plan_.quantize.encoded > 0) {
    ASSIGN_OR_RETURN(encoder_, PartEncoder::Create(options_.threads));
  }
  RETURN_IF_ERROR(OpenPartial());
  RETURN_IF_ERROR(CheckSpace());
  for (size_t i = 0; i < plan_.files.size(); ++i) RETURN_IF_ERROR(WriteWeights(static_cast<int32_t>(i)));
  if (!waiting_files_.empty()) return Status();
  for (const FileChecksum& copy : plan_.copies) RETURN_IF_ERROR(CopyFile(copy));
  for (const FileChecksum& made : plan_.generated) {
    RETURN_IF_ERROR(WriteSmallFile(made.name, options_.generated_files.at(made.name)));
    RETURN_IF_ERROR(Advance(made.bytes));
  }
  RETURN_IF_ERROR(WriteDescriptions());
  return Publish();
}

Status PackRun::OpenPartial() {
  if (!FileExists(paths_.journal)) {
    Result<std::vector<std::string>> names = ListFolder(paths_.partial);
    if (names.ok() ? !names->empty() : names.status().code() != StatusCode::kNotFound) {
      return InvalidArgumentError(
          fmt::format("{} is needed for the unfinished pack but holds something else; move it away", paths_.partial));
    }
  }
  RETURN_IF_ERROR(CreateFolders(paths_.partial));
  ASSIGN_OR_RETURN(journal_, Journal::Open(paths_.journal));
  if (journal_.identity() != plan_.identity) RETURN_IF_ERROR(journal_.Start(plan_.identity));
  resumed_ = !journal_.finished().empty();
  RETURN_IF_ERROR(CreateFolders(paths_.pack));
  RETURN_IF_ERROR(CleanUnfinished());
  RETURN_IF_ERROR(SyncFolder(paths_.partial));
  return SyncFolder(paths_.parent);
}

// Removes files of an earlier plan. The folder is ours by its journal; still, only names that the packer gives are
// touched.
Status PackRun::CleanUnfinished() {
  ASSIGN_OR_RETURN(const std::vector<std::string> names, ListFolder(paths_.pack));
  for (const std::string& name : names) {
    const std::string path = JoinPath(paths_.pack, name);
    if (!IsPackFileName(name)) {
      return InvalidArgumentError(fmt::format("{} was not written by the packer; move it away", path));
    }
    const auto file = std::find_if(plan_.manifest.files.begin(), plan_.manifest.files.end(),
                                   [&](const SourceFile& planned) { return planned.path == name; });
    if (resumed_ && file != plan_.manifest.files.end()) continue;
    if (::unlink(path.c_str()) != 0) return ErrnoStatus(errno, "removing", path);
  }
  return Status();
}

Status PackRun::CheckSpace() const {
  struct statvfs space = {};
  if (::statvfs(paths_.pack.c_str(), &space) != 0) return ErrnoStatus(errno, "reading the free space of", paths_.pack);
  if (space.f_blocks == 0) return Status();  // some network file systems do not say
  int64_t held = 0;
  for (const SourceFile& file : plan_.manifest.files) {
    struct stat info = {};
    if (::stat(JoinPath(paths_.pack, file.path).c_str(), &info) == 0) held += int64_t{info.st_blocks} * 512;
  }
  const int64_t needed = std::max<int64_t>(plan_.total_bytes - held, 0);
  const auto unit = static_cast<int64_t>(space.f_frsize);
  const auto free_units = static_cast<int64_t>(space.f_bavail);
  if (needed / unit < free_units) return Status();
  return ResourceExhaustedError(fmt::format("{}: not enough space for the pack: it needs {} more, {} are free",
                                            paths_.parent, FormatSize(needed), FormatSize(free_units * unit)));
}

Status PackRun::WriteWeights(int32_t file) {
  const PlannedFile& planned = plan_.files[static_cast<size_t>(file)];
  const SourceFile& target = plan_.manifest.files[static_cast<size_t>(file)];
  const std::string path = JoinPath(paths_.pack, target.path);
  struct stat info = {};
  // The journal speaks of a file of the right size; one that was cut or removed since starts anew.
  const bool trusted =
      resumed_ && ::stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) && info.st_size == target.bytes;
  ASSIGN_OR_RETURN(OutputFile out, OutputFile::Open(path, target.bytes));
  RETURN_IF_ERROR(SyncFolder(paths_.pack));
  RETURN_IF_ERROR(out.WriteAt(0, PackedFileHeader(plan_, file)));
  RETURN_IF_ERROR(Advance(planned.header_bytes));
  Status status;
  for (size_t i = 0; i < planned.pieces.size(); ++i) {
    const int32_t piece = planned.pieces[i];
    ManifestPiece& record = plan_.manifest.pieces[static_cast<size_t>(piece)];
    const auto finished = journal_.finished().find(piece);
    if (trusted && finished != journal_.finished().end()) {
      record.checksum = finished->second;
      status = Advance(record.bytes);
    } else if (!IsAvailable(piece)) {
      for (const TensorSlice& part : layout_.pieces[static_cast<size_t>(piece)].parts) waiting_files_.insert(part.file);
    } else {
      // The next record is read while this one is hashed and written.
      if (i + 1 < planned.pieces.size()) Prefetch(planned.pieces[i + 1]);
      status = WriteRecord(piece, out, record.checksum);
      if (status.ok()) {
        batch_.push_back({piece, record.checksum});
        batch_bytes_ += record.bytes;
        if (batch_bytes_ >= kBatchBytes) status = FlushBatch(out);
      }
    }
    if (!status.ok()) break;
  }
  // Also after a failure: what was written need not be written again. The first error is the one to tell.
  const Status flushed = FlushBatch(out);
  RETURN_IF_ERROR(status);
  return flushed;
}

bool PackRun::IsAvailable(int32_t piece) const {
  const std::vector<TensorSlice>& parts = layout_.pieces[static_cast<size_t>(piece)].parts;
  return !options_.available || std::all_of(parts.begin(), parts.end(),
                                            [this](const TensorSlice& part) { return options_.available(part.file); });
}

// The beginning of every part: the kernel then reads them side by side, and more of a long part as it is being read.
void PackRun::Prefetch(int32_t piece) {
  int64_t left = kPrefetchBytes;
  for (const TensorSlice& part : layout_.pieces[static_cast<size_t>(piece)].parts) {
    const int64_t bytes = std::min(part.bytes, left);
    if (bytes > 0) source_.Prefetch(part.file, part.offset, bytes);
    left -= bytes;
  }
}

// Parts from the source, zeros between them.
Status PackRun::WriteRecord(int32_t piece, OutputFile& out, std::string& checksum) {
  const std::vector<TensorSlice>& parts = layout_.pieces[static_cast<size_t>(piece)].parts;
  const ManifestPiece& record = plan_.manifest.pieces[static_cast<size_t>(piece)];
  RecordWriter writer(buffer_, out, record.offset, [this](int64_t bytes) { return Advance(bytes); });
  const ManifestTensor* next = record.tensors.data();
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::optional<PartEncoding> encoding = plan_.quantize.EncodingOf(static_cast<size_t>(piece), i);
    RETURN_IF_ERROR(writer.PadTo(next->offset));
    const std::optional<PartOrder>& order = plan_.orders[static_cast<size_t>(piece)][i];
    if (encoding.has_value()) {
      RETURN_IF_ERROR(EncodePart(parts[i], *encoding, order, next, writer));
    } else {
      RETURN_IF_ERROR(order.has_value() ? TurnPart(parts[i], *order, writer) : CopyPart(parts[i], writer));
    }
    next += PackedTensors(plan_, layout_, static_cast<size_t>(piece), i).size();
  }
  RETURN_IF_ERROR(writer.PadTo(record.bytes));
  ASSIGN_OR_RETURN(checksum, writer.Finish());
  return Status();
}

Status PackRun::CopyPart(const TensorSlice& part, RecordWriter& writer) {
  const int64_t end = part.offset + part.bytes;
  for (int64_t offset = part.offset; offset < end;) {
    ASSIGN_OR_RETURN(const std::span<uint8_t> room, writer.Room(end - offset));
    RETURN_IF_ERROR(source_.Read(part.file, offset, room));
    writer.Add(room.size());
    offset += static_cast<int64_t>(room.size());
    if (const int64_t more = std::min(end - offset, kPrefetchBytes); more > 0) {
      source_.Prefetch(part.file, offset, more);
    }
  }
  return Status();
}

Status PackRun::TurnPart(const TensorSlice& part, const PartOrder& order, RecordWriter& writer) {
  TileTurner turner(order, order.scales);
  turn_buffer_.resize(static_cast<size_t>(kTurnBytes));
  const int64_t end = part.offset + part.bytes;
  for (int64_t offset = part.offset; offset < end;) {
    const auto bytes = std::span(turn_buffer_).first(static_cast<size_t>(std::min(end - offset, kTurnBytes)));
    RETURN_IF_ERROR(source_.Read(part.file, offset, bytes));
    offset += static_cast<int64_t>(bytes.size());
    if (const int64_t more = std::min(end - offset, kPrefetchBytes); more > 0) {
      source_.Prefetch(part.file, offset, more);
    }
    RETURN_IF_ERROR(turner.Append(bytes, [&](std::span<const uint8_t> tile) { return writer.Append(tile); }));
  }
  return Status();
}

// `tensors`: what becomes of the part - codes, scales and maybe biases.
Status PackRun::EncodePart(const TensorSlice& part, const PartEncoding& encoding, const std::optional<PartOrder>& order,
                           const ManifestTensor* tensors, RecordWriter& writer) {
  const TileTurner::Sink write = [&](std::span<const uint8_t> bytes) { return writer.Append(bytes); };
  std::optional<TileTurner> turner;
  const TileTurner::Sink turn = [&](std::span<const uint8_t> bytes) {
    return turner.has_value() ? turner->Append(bytes, write) : write(bytes);
  };
  if (order.has_value()) turner.emplace(*order, false);
  RETURN_IF_ERROR(encoder_->Encode(part, encoding, source_, turn));
  if (order.has_value()) turner.emplace(*order, true);
  RETURN_IF_ERROR(writer.PadTo(tensors[1].offset));
  RETURN_IF_ERROR(turn(encoder_->scales()));
  if (encoder_->biases().empty()) return Status();
  RETURN_IF_ERROR(writer.PadTo(tensors[2].offset));
  return turn(encoder_->biases());
}

Status PackRun::FlushBatch(OutputFile& out) {
  source_.DropAll();
  RETURN_IF_ERROR(out.Sync());
  const std::vector<JournalEntry> batch = std::exchange(batch_, {});
  batch_bytes_ = 0;
  return batch.empty() ? Status() : journal_.Append(batch);
}

Status PackRun::CopyFile(const FileChecksum& copy) {
  const std::string from = JoinPath(source_folder_, copy.name);
  ASSIGN_OR_RETURN(const File file, File::OpenRead(from));
  ASSIGN_OR_RETURN(OutputFile out, OutputFile::Open(JoinPath(paths_.pack, copy.name), copy.bytes));
  ContentHash hash;
  for (int64_t offset = 0; offset < copy.bytes;) {
    const std::span<uint8_t> data(buffer_.data(), static_cast<size_t>(std::min(copy.bytes - offset, kBufferBytes)));
    RETURN_IF_ERROR(file.ReadAt(offset, data));
    hash.Update(data);
    RETURN_IF_ERROR(out.WriteAt(offset, data));
    offset += static_cast<int64_t>(data.size());
    RETURN_IF_ERROR(Advance(static_cast<int64_t>(data.size())));
  }
  if (hash.Checksum() != copy.checksum) {
    return DataLossError(fmt::format("{} has changed while it was copied; run the command again", from));
  }
  return out.Sync();
}

Status PackRun::WriteSmallFile(std::string_view name, std::string_view content) {
  ASSIGN_OR_RETURN(OutputFile out, OutputFile::Open(JoinPath(paths_.pack, name), static_cast<int64_t>(content.size())));
  RETURN_IF_ERROR(out.WriteAt(0, content));
  return out.Sync();
}

// The checksum file covers the manifest, yet the manifest comes last: its text is known before.
Status PackRun::WriteDescriptions() {
  const std::string manifest = WriteManifest(plan_.manifest);
  std::vector<FileChecksum> checksums = plan_.copies;
  checksums.insert(checksums.end(), plan_.generated.begin(), plan_.generated.end());
  for (size_t i = 0; i < plan_.files.size(); ++i) {
    checksums.push_back({.name = plan_.manifest.files[i].path,
                         .bytes = plan_.files[i].header_bytes,
                         .checksum = ChecksumOf(PackedFileHeader(plan_, static_cast<int32_t>(i)))});
  }
  checksums.push_back({.name = std::string(kManifestFile),
                       .bytes = static_cast<int64_t>(manifest.size()),
                       .checksum = ChecksumOf(manifest)});
  const std::string text = WriteChecksums(checksums);
  plan_.total_bytes += static_cast<int64_t>(text.size() + manifest.size());
  RETURN_IF_ERROR(WriteSmallFile(kChecksumsFile, text));
  RETURN_IF_ERROR(WriteSmallFile(kManifestFile, manifest));
  ASSIGN_OR_RETURN(const std::vector<std::string> names, ListFolder(paths_.pack));
  const std::set<std::string> found(names.begin(), names.end());
  std::set<std::string> expected = {std::string(kChecksumsFile)};
  for (const FileChecksum& file : checksums) expected.insert(file.name);
  if (found == expected) return Status();
  return DataLossError(fmt::format("{}: expected the {} files of the pack, found {}: another program writes there",
                                   paths_.pack, expected.size(), found.size()));
}

Status PackRun::Publish() {
  RETURN_IF_ERROR(SyncFolder(paths_.pack));
  // Over an empty folder rename succeeds, over anything else it fails.
  if (::rename(paths_.pack.c_str(), paths_.out.c_str()) != 0) {
    return ErrnoStatus(errno, fmt::format("renaming {} to", paths_.pack), paths_.out);
  }
  RETURN_IF_ERROR(SyncFolder(paths_.parent));
  // The pack is complete; a journal that cannot be removed is no failure.
  ::unlink(paths_.journal.c_str());
  ::rmdir(paths_.partial.c_str());
  return Status();
}

bool PackRun::KeepsWork() {
  if (!journal_.is_open()) return false;  // nothing was begun, or the folder is another's
  if (!journal_.finished().empty()) return true;
  resumed_ = false;
  if (!CleanUnfinished().ok()) return false;
  ::rmdir(paths_.pack.c_str());
  ::unlink(paths_.journal.c_str());
  ::rmdir(paths_.partial.c_str());
  return false;
}

Status PackRun::Advance(int64_t bytes) {
  done_bytes_ += bytes;
  if (!options_.progress || options_.progress(done_bytes_, plan_.total_bytes)) return Status();
  return CancelledError("packing was cancelled");
}

}  // namespace

Result<PackReport> Pack(const Checkpoint& checkpoint, const ModelLayout& layout, const PackOptions& options) {
  if (checkpoint.is_pack && options.layout != PackLayout::kRows) {
    return InvalidArgumentError(fmt::format(
        "{} is already a pack; give the checkpoint it was made from, or --layout rows for a pack with its tensors",
        checkpoint.folder));
  }
  ASSIGN_OR_RETURN(PackPlan plan, MakePackPlan(checkpoint, layout, options));
  ASSIGN_OR_RETURN(const PackPaths paths, FindPackPaths(options.out_folder));
  if (paths.out == RealPath(checkpoint.folder)) {
    return InvalidArgumentError(
        fmt::format("{} is the model itself; choose another output folder", options.out_folder));
  }
  PackReport report{.layers = plan.manifest.num_layers,
                    .pieces = static_cast<int64_t>(layout.pieces.size()),
                    .dropped = plan.dropped,
                    .source_weight_bytes = layout.total_bytes,
                    .weight_bytes = 0,
                    .encoded = plan.quantize.encoded,
                    .already_encoded = plan.quantize.already_encoded,
                    .kept_floats = plan.quantize.kept};
  for (const ManifestPiece& piece : plan.manifest.pieces) {
    for (const ManifestTensor& tensor : piece.tensors) report.weight_bytes += tensor.bytes;
  }
  ASSIGN_OR_RETURN(report.reused, IsAlreadyPacked(paths, plan));
  if (report.reused) {
    RemoveLeftover(paths);
    report.bytes = FolderBytes(paths.out);
    return report;
  }
  PackRun run(checkpoint, layout, options, paths, std::move(plan));
  if (const Status status = run.Run(); !status.ok()) {
    if (!run.KeepsWork()) return status;
    return Status(status.code(), fmt::format("{}; the finished part is kept in {}, the same command continues it",
                                             status.message(), paths.partial));
  }
  report.resumed = run.resumed();
  report.waiting_files.assign(run.waiting_files().begin(), run.waiting_files().end());
  report.bytes = run.bytes();
  return report;
}

}  // namespace nunspark
