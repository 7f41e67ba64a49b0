// The journal of an unfinished pack: which records are on the drive, and their checksums.
//
// One line a record, each closed by its own hash, so that a line that was cut off by a kill or a power cut is seen;
// what follows it is not used. A line is written after its record was synced, so every line that is there can be
// believed.
#ifndef NUNSPARK_PACK_JOURNAL_H_
#define NUNSPARK_PACK_JOURNAL_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "io/file.h"
#include "nunspark/status.h"

namespace nunspark {

struct JournalEntry {
  int32_t piece = 0;
  std::string checksum;
};

// Holds the exclusive lock of its file while it lives. Move-only.
class Journal {
 public:
  // Opens or creates, locks and reads. Errors: kInvalidArgument when another process holds the lock, or when the file
  // is no journal; kPermission, kIo.
  static Result<Journal> Open(const std::string& path);

  bool is_open() const { return file_.is_open(); }
  // Of the plan whose records these are; empty while the journal is new.
  const std::string& identity() const { return identity_; }
  // Piece -> checksum of its record.
  const std::map<int32_t, std::string>& finished() const { return finished_; }

  // Forgets everything and starts anew. On the drive when it returns.
  Status Start(const std::string& identity);

  // On the drive when it returns. REQUIRES: the records are.
  Status Append(const std::vector<JournalEntry>& entries);

 private:
  Status Read(const std::string& text);
  Status Write(const std::string& text);

  File file_;
  std::string identity_;
  std::map<int32_t, std::string> finished_;
  int64_t bytes_ = 0;  // of whole lines
};

}  // namespace nunspark

#endif  // NUNSPARK_PACK_JOURNAL_H_
