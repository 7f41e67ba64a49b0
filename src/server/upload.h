// Files that people hand to jobs: how they arrive, what may be one, and the prompt that becomes of it.
#ifndef NUNSPARK_SERVER_UPLOAD_H_
#define NUNSPARK_SERVER_UPLOAD_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "nunspark/status.h"

namespace nunspark::server {

struct UploadedFile {
  std::string name;  // as SafeFileName leaves it
  std::string content;
};

// The files of the field `field` of a multipart/form-data body. Errors: MultipartReader's; kInvalidArgument for a field
// of that name that is no file.
Result<std::vector<UploadedFile>> FilesOfForm(std::string_view content_type, std::string_view body,
                                              std::string_view field);

// What may be the name of a file in any folder: without directories and control characters, valid UTF-8, at most 200
// bytes; "file" where nothing is left.
std::string SafeFileName(std::string_view name);

// Refuses what is no plain text, by content and not by name: PDF, zip (office files are), PNG, JPEG, GIF and ELF
// signatures, a NUL in the first 8 KiB, more than 5 % of its characters invalid UTF-8. Errors: kInvalidArgument naming
// the reason and what to give instead.
Status CheckTextFile(std::string_view content);

// The trimmed instruction, a blank line, the text (without a byte order mark, what is no UTF-8 replaced).
std::string PromptText(std::string_view instruction, std::string_view text);

// The longest prompt of a job, in tokens: what memory leaves to keys and values.
struct PromptLimit {
  int64_t tokens = 0;
  bool given = false;           // by the job's max_prompt_tokens
  int64_t ram_bytes = 0;        // 0: unknown
  int64_t bytes_per_token = 0;  // 0: unknown
};

// (ram - budget - 4 GiB) / bytes_per_token, from 4096 to 65536; 8192 where a figure is unknown (0). `given` replaces
// it; 0: not given.
PromptLimit MakePromptLimit(int64_t ram_bytes, int64_t budget_bytes, int64_t bytes_per_token, int64_t given);

// Errors: kInvalidArgument with the prompt's length, the limit, what its keys and values need, the machine's memory and
// the name of the setting that replaces the limit.
Status CheckPromptLength(int64_t tokens, const PromptLimit& limit);

}  // namespace nunspark::server

#endif  // NUNSPARK_SERVER_UPLOAD_H_
