// The logic of `nunspark chat-format`: one JSON line in, one JSON line out.
//
//   {"context": {...}, "template": S?}  ->  {"output": S}  or  {"error": {"type": T, "message": M}}
//
// `context` holds every variable the template sees; integers in it are exact at any size. Without `template` the
// folder's own is used, with the folder's special tokens (bos_token, ...) filled in where the context has none. As in
// transformers, a folder's template of the name "tool_use" serves contexts with tools.
// Thread-compatible.
#ifndef NUNSPARK_TEXT_CHAT_CHAT_FORMAT_LINES_H_
#define NUNSPARK_TEXT_CHAT_CHAT_FORMAT_LINES_H_

#include <memory>
#include <string>
#include <string_view>

#include "base/json.h"
#include "nunspark/status.h"
#include "text/chat/chat_template.h"

namespace nunspark::text {

class ChatFormatLines {
 public:
  ~ChatFormatLines();

  // Loads the template and tokens of `folder` once; an empty `folder` means that every line brings its own template.
  // A folder without a template is no error until a line needs it. `now` feeds strftime_now.
  // Errors: as LoadChatTemplateSource and LoadSpecialTokens, but kNotFound only for a missing folder.
  static Result<std::unique_ptr<ChatFormatLines>> Open(const std::string& folder, const CivilTime& now);

  // The same for templates that come from elsewhere. `source.status` may be kNotFound, which is no error until a line
  // needs the template; other errors are given back.
  static Result<std::unique_ptr<ChatFormatLines>> Make(ChatSource source, const CivilTime& now);

  // Answers one line; never fails as a whole. No newline at the end.
  std::string Answer(std::string_view line);

 private:
  struct Impl;
  explicit ChatFormatLines(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// "2026-07-04 15:09:26", or with a T between date and time; the time may be left out.
// Errors: kInvalidArgument with what was expected.
Result<CivilTime> ParseCivilTime(std::string_view text);

// The wall clock in the local time zone.
CivilTime LocalTimeNow();

}  // namespace nunspark::text

#endif  // NUNSPARK_TEXT_CHAT_CHAT_FORMAT_LINES_H_
