// How texts are cut for each name that "tokenizer.ggml.pre" may have.
#ifndef NUNSPARK_TEXT_TOKENIZER_GGUF_PRE_H_
#define NUNSPARK_TEXT_TOKENIZER_GGUF_PRE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace nunspark::text {

enum class GgufPipeline : uint8_t {
  kByteLevel,   // visible byte-level tokens
  kWholeWords,  // characters, spaces as U+2581, unknown ones as <0xNN>: Gemma 4 and its like
};

struct GgufPre {
  GgufPipeline pipeline;
  bool nfc;            // the text is brought to normal form C first
  bool ignore_merges;  // a piece that is a token is that token
  bool adds_bos;       // unless the file says otherwise
  std::string steps;   // the "pretokenizers" of a tokenizer.json, as JSON text without brackets; kWholeWords: empty
};

// nullopt for a name that is not known.
std::optional<GgufPre> FindGgufPre(std::string_view name);

// All names, separated by ", ", for error texts.
std::string KnownGgufPres();

}  // namespace nunspark::text

#endif  // NUNSPARK_TEXT_TOKENIZER_GGUF_PRE_H_
