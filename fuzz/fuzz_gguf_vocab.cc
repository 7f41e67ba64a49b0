// Vocabularies as GGUF files have them, from lines of text; what loads is also used.
//
// The first line: model, pre, flags as letters. Then a line for each token ("t", its type as a digit, its score as a
// signed byte, its text) or merge ("m", its text). A 0x01 in a text stands for a line end.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/utf8.h"
#include "text/tokenizer/gguf_vocab.h"

namespace {

using namespace nunspark::text;

std::string_view Cut(std::string_view& text, char end) {
  const std::string_view part = text.substr(0, text.find(end));
  text.remove_prefix(std::min(text.size(), part.size() + 1));
  return part;
}

void Use(const Tokenizer& tokenizer) {
  for (const std::string_view text : {std::string_view("  Hello  w\xC3\xB6rld 123\n<s> abab\xE2\x96\x81 e\xCC\x81 "),
                                      std::string_view("\xFF\xC3 \xF0\x9F\x98\x80")}) {
    const auto ids = tokenizer.Encode(text, AddSpecials::kYes);
    if (ids.ok()) CHECK(nunspark::IsValidUtf8(tokenizer.Decode(*ids, SkipSpecials::kNo)));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  std::deque<std::string> texts;
  GgufVocab vocab;
  std::string_view head = Cut(rest, '\n');
  vocab.model = Cut(head, ' ');
  vocab.pre = Cut(head, ' ');
  const auto flag = [head](char letter) { return head.find(letter) != std::string_view::npos; };
  if (flag('b')) vocab.add_bos = flag('B');
  if (flag('e')) vocab.add_eos = flag('E');
  if (flag('p')) vocab.add_space_prefix = flag('P');
  if (flag('r')) vocab.remove_extra_whitespaces = flag('R');
  if (flag('0')) vocab.bos_id = 0;
  if (flag('1')) vocab.eos_id = 1;
  if (flag('2')) vocab.unknown_id = 2;
  if (flag('n')) vocab.model_name = "phi-3";
  while (!rest.empty()) {
    std::string_view line = Cut(rest, '\n');
    const bool is_token = line.size() >= 3 && line[0] == 't';
    std::string& text = texts.emplace_back(line.substr(std::min<size_t>(line.size(), is_token ? 3 : 1)));
    std::replace(text.begin(), text.end(), '\x01', '\n');
    if (is_token) {
      vocab.tokens.push_back(text);
      vocab.token_types.push_back(line[1] - '0');
      vocab.scores.push_back(static_cast<float>(static_cast<signed char>(line[2])));
    } else {
      vocab.merges.push_back(text);
    }
  }
  const auto tokenizer = LoadGgufVocab(vocab, "fuzz");
  if (tokenizer.ok()) Use(**tokenizer);
  (void)GgufTokenizerConfig(vocab);
  return 0;
}
