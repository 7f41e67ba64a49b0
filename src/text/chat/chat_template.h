// Chat templates: the part of Jinja2 that model makers use, with Python's semantics, run under limits.
//
// Parsed once, rendered many times, also by several threads at once. A template is untrusted input: it cannot loop,
// recurse or allocate without end, and reaches nothing but its context.
#ifndef NUNSPARK_TEXT_CHAT_CHAT_TEMPLATE_H_
#define NUNSPARK_TEXT_CHAT_CHAT_TEMPLATE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "nunspark/status.h"

namespace nunspark::text {

// A civil local time, for strftime_now.
struct CivilTime {
  int year, month, day, hour, minute, second;
};

// What went wrong, named as Jinja2 and Python name it: "TemplateSyntaxError", "TemplateError" (raise_exception, with
// the template's own message), "UndefinedError", "TypeError", "SecurityError", "LimitError" (ours), ...
//
// Python's values as far as templates use them: integers are exact up to 4300 digits; sets, bytes and complex numbers
// do not exist, and what would make one is a TypeError that says "not supported". include, import and extends fail as
// in an environment without a loader. The random filter and lipsum() give the same every time.
struct TemplateError {
  std::string type;
  std::string message;
};

struct RenderLimits {
  int64_t steps = 4'000'000;         // evaluated nodes, and one for each 4 bytes of text made or read
  int depth = 200;                   // nested calls; nested expressions, blocks and data: 8 times as deep
  int64_t output_bytes = 16 << 20;   // of the rendered text and of any single string
  int64_t sequence_items = 1 << 20;  // of any list, range or dict made by the template

  // What suits a context of that many bytes of JSON: the limits above are for hostile templates, which are over within
  // 100 ms (docs/measurements/tokenizers.md); with a long conversation much of the work is the caller's own text.
  static RenderLimits ForContext(size_t context_bytes);
};

class ChatTemplate {
 public:
  ~ChatTemplate();

  // Errors: on a syntax error nullptr, with *error filled.
  static std::unique_ptr<ChatTemplate> Parse(std::string_view source, TemplateError* error);

  // Renders with `context` (an object: messages, tools, add_generation_prompt, bos_token, ...), as transformers'
  // apply_chat_template does: ImmutableSandboxedEnvironment, trim_blocks, lstrip_blocks, loopcontrols.
  // `now` feeds strftime_now. Returns false and fills *error on failure; *output is then unspecified.
  bool Render(const Json& context, const CivilTime& now, std::string* output, TemplateError* error,
              const RenderLimits& limits = {}) const;

  // The same for a context that is still JSON text. Reads it as Python's json module does: integers beyond 64 bits stay
  // exact (a Json tree has only their nearest double), NaN and Infinity are numbers. Malformed text is an error too.
  // `defaults`: an object of strings, each a variable where the context has none of that name (special tokens).
  bool RenderJsonText(std::string_view context, const CivilTime& now, std::string* output, TemplateError* error,
                      const RenderLimits& limits = {}, const Json& defaults = Json()) const;

 private:
  struct Impl;
  explicit ChatTemplate(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// The template a model folder publishes: chat_template.jinja, else chat_template.json, else tokenizer_config.json's
// chat_template (a string, or a list of {name, template}; `name` chooses, "" means "default").
// Errors: kNotFound when the folder has none; kDataLoss for a malformed file.
Result<std::string> LoadChatTemplateSource(const std::string& folder, std::string_view name = "");

// The same of a tokenizer_config.json that is there already; `where` names it in errors.
Result<std::string> ChatTemplateOf(const Json& tokenizer_config, const std::string& where, std::string_view name = "");

// All of a model's templates that are chosen by themselves, and its special tokens.
struct ChatSource {
  Status status;         // why there is no `standard`: kNotFound, or what is wrong with it
  std::string standard;  // the template "default", or the only one
  // The one of that name, which as in transformers serves requests with tools.
  std::optional<std::string> tool_use;
  Json special_tokens{Json::Object()};
};
// Errors: as LoadSpecialTokens; what is wrong with templates is in `status`.
Result<ChatSource> LoadChatSource(const std::string& folder);
ChatSource ChatSourceOf(const Json& tokenizer_config, const std::string& where);

// bos_token, eos_token, unk_token, pad_token and the other special-token strings of the folder's tokenizer_config.json
// and special_tokens_map.json, as an object of strings (absent ones left out).
Result<Json> LoadSpecialTokens(const std::string& folder);

// The same of one file's content.
Json SpecialTokensOf(const Json& config);

}  // namespace nunspark::text

#endif  // NUNSPARK_TEXT_CHAT_CHAT_TEMPLATE_H_
