#include "pack/journal.h"

#include <charconv>
#include <optional>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "base/read_file.h"
#include "formats/content_hash.h"
#include "io/locked_file.h"

namespace nunspark {
namespace {

constexpr std::string_view kHead = "nunspark pack journal 1 ";
constexpr std::string_view kPiece = "piece ";
constexpr size_t kHashDigits = 16;

std::string Line(std::string_view payload) { return fmt::format("{} {:016x}\n", payload, Hash64(payload)); }

// The payload of the line at the start of `text`, and removes the line; nullopt when it is cut off or damaged.
std::optional<std::string_view> TakeLine(std::string_view& text) {
  const size_t end = text.find('\n');
  if (end == std::string_view::npos || end < kHashDigits + 1) return std::nullopt;
  const std::string_view payload = text.substr(0, end - kHashDigits - 1);
  if (text.substr(0, end + 1) != Line(payload)) return std::nullopt;
  text.remove_prefix(end + 1);
  return payload;
}

std::optional<JournalEntry> ParseEntry(std::string_view payload) {
  if (!payload.starts_with(kPiece)) return std::nullopt;
  payload.remove_prefix(kPiece.size());
  JournalEntry entry;
  const char* const end = payload.data() + payload.size();
  const std::from_chars_result parsed = std::from_chars(payload.data(), end, entry.piece);
  if (parsed.ec != std::errc() || entry.piece < 0 || parsed.ptr == end || *parsed.ptr != ' ') return std::nullopt;
  entry.checksum = std::string(parsed.ptr + 1, end);
  if (!IsChecksum(entry.checksum)) return std::nullopt;
  return entry;
}

}  // namespace

Result<Journal> Journal::Open(const std::string& path) {
  Journal journal;
  ASSIGN_OR_RETURN(std::optional<File> file, OpenLocked(path));
  if (!file)
    return InvalidArgumentError(fmt::format("{} is in use: another process is packing into this folder", path));
  journal.file_ = *std::move(file);
  ASSIGN_OR_RETURN(const std::string text, ReadRegularFile(path));
  RETURN_IF_ERROR(journal.Read(text));
  return journal;
}

Status Journal::Read(const std::string& text) {
  std::string_view rest = text;
  const std::optional<std::string_view> head = TakeLine(rest);
  if (!head.has_value()) {
    // Killed while the first line was written; nothing else can exist yet.
    if (text.size() <= kHead.size() ? kHead.starts_with(text)
                                    : text.starts_with(kHead) && text.find('\n') == std::string::npos) {
      return Status();
    }
    return InvalidArgumentError(
        fmt::format("{} is not the journal of a pack; expected it to begin with \"{}\"", file_.path(), kHead));
  }
  if (!head->starts_with(kHead)) {
    return InvalidArgumentError(
        fmt::format("{} is not the journal of a pack of this version; remove its folder", file_.path()));
  }
  identity_ = head->substr(kHead.size());
  while (const std::optional<std::string_view> payload = TakeLine(rest)) {
    std::optional<JournalEntry> entry = ParseEntry(*payload);
    if (!entry.has_value()) break;
    finished_.insert_or_assign(entry->piece, std::move(entry->checksum));
  }
  bytes_ = static_cast<int64_t>(text.size() - rest.size());
  return Status();
}

Status Journal::Start(const std::string& identity) {
  identity_ = identity;
  finished_.clear();
  bytes_ = 0;
  RETURN_IF_ERROR(file_.Truncate(0));
  return Write(Line(fmt::format("{}{}", kHead, identity)));
}

Status Journal::Append(const std::vector<JournalEntry>& entries) {
  std::string text;
  for (const JournalEntry& entry : entries) {
    text += Line(fmt::format("{}{} {}", kPiece, entry.piece, entry.checksum));
    finished_.insert_or_assign(entry.piece, entry.checksum);
  }
  return Write(text);
}

Status Journal::Write(const std::string& text) {
  RETURN_IF_ERROR(file_.WriteAt(bytes_, std::span(reinterpret_cast<const uint8_t*>(text.data()), text.size())));
  RETURN_IF_ERROR(file_.Sync());
  bytes_ += static_cast<int64_t>(text.size());
  return Status();
}

}  // namespace nunspark
