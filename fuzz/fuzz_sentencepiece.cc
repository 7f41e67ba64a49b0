// SentencePiece models and tiktoken ranks from memory; what loads is also used.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/utf8.h"
#include "text/tokenizer/load.h"

namespace {

using namespace nunspark::text;

void Use(const PipelineTokenizer& tokenizer) {
  for (const std::string_view text :
       {std::string_view(""),
        std::string_view("  Hello  w\xC3\xB6rld 123\n<s> abab aaaaaaaaaaaa\xE2\x96\x81\xEF\xBC\xA1 e\xCC\x81 "),
        std::string_view("\xFF\xC3 \xF0\x9F\x98\x80")}) {
    const auto ids = tokenizer.Encode(text, AddSpecials::kYes);
    if (!ids.ok()) continue;
    const std::string whole = tokenizer.Decode(*ids, SkipSpecials::kNo);
    CHECK(nunspark::IsValidUtf8(whole));
    StreamDecoder stream(tokenizer, SkipSpecials::kNo);
    std::string streamed;
    for (const TokenId id : *ids) streamed += stream.Push(id);
    streamed += stream.Finish();
    CHECK(streamed == whole);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view content(reinterpret_cast<const char*>(data), size);
  const auto model = LoadSentencePiece(content, "fuzz", {});
  if (model.ok()) Use(**model);
  if (LooksLikeTiktoken(content)) {
    const auto ranks = LoadTiktoken(content, "fuzz", {}, "");
    if (ranks.ok()) Use(**ranks);
  }
  return 0;
}
