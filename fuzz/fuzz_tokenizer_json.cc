// tokenizer.json from memory; what loads is also used.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/utf8.h"
#include "text/tokenizer/load.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace nunspark::text;
  std::string content;
  content.reserve(size + kJsonPadding);
  content.assign(reinterpret_cast<const char*>(data), size);
  const auto tokenizer = LoadTokenizerJson(content, "fuzz");
  if (!tokenizer.ok()) return 0;
  const PipelineTokenizer& loaded = **tokenizer;
  for (const std::string_view text :
       {std::string_view(""),
        std::string_view(
            " Hello  w\xC3\xB6rld's 123\r\n\n<a> aaaaaaaaaaaaaaaa\xE2\x96\x81\xE4\xBD\xA0\xE5\xA5\xBD e\xCC\x81"),
        std::string_view("\xFF\xC3 <b>\t\xF0\x9F\x98\x80")}) {
    const auto ids = loaded.Encode(text, AddSpecials::kYes);
    if (!ids.ok()) continue;
    const std::string whole = loaded.Decode(*ids, SkipSpecials::kNo);
    CHECK(nunspark::IsValidUtf8(whole));
    StreamDecoder stream(loaded, SkipSpecials::kNo);
    std::string streamed;
    for (const TokenId id : *ids) {
      const std::string part = stream.Push(id);
      CHECK(nunspark::IsValidUtf8(part));
      streamed += part;
    }
    streamed += stream.Finish();
    CHECK(streamed == whole);
  }
  return 0;
}
