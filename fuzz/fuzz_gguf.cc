// GGUF headers, and what is made of them: the index's rules, configuration, vocabulary, end tokens. The first two bytes
// are the size of the data behind the header, in units of 32 bytes, so that tensors have a place to be.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "formats/config.h"
#include "formats/gguf.h"
#include "formats/gguf_config.h"
#include "formats/gguf_model.h"
#include "formats/gguf_vocab.h"

namespace {

using namespace nunspark;

void CheckMessage(const Status& status) {
  CHECK(status.message().starts_with("input"));
  CHECK(status.message().size() < 4000);
  for (const char character : status.message()) CHECK(static_cast<uint8_t>(character) >= 0x20);
}

// What every reader of a TensorIndex relies on.
void CheckFile(const GgufFile& file, int64_t file_bytes) {
  CHECK(file.keys.size() <= kMaxGgufKeys && file.tensors.size() <= kMaxGgufTensors);
  for (const GgufKey& key : file.keys) CHECK(file.Find(key.name) == &key.value);
  int64_t at = file.data_offset;
  for (const GgufTensor& tensor : file.tensors) {
    CHECK(tensor.offset >= at && tensor.bytes > 0);
    at = tensor.offset + tensor.bytes;
    int64_t elements = 1;
    for (const int64_t dimension : tensor.shape) elements *= dimension;
    CHECK(elements / tensor.type->block_elements * tensor.type->block_bytes == tensor.bytes);
  }
  CHECK(file.tensors.empty() || at <= file_bytes);
}

void CheckVocab(const GgufFile& file) {
  const Result<GgufVocab> vocab = GgufVocabOf(file);
  for (const int32_t id : GgufEndIds(file)) CHECK(id >= 0);
  if (!vocab.ok()) return CheckMessage(vocab.status());
  CHECK(vocab->scores.empty() || vocab->scores.size() == vocab->tokens.size());
  CHECK(vocab->token_types.empty() || vocab->token_types.size() == vocab->tokens.size());
  for (const auto& id : {vocab->bos_id, vocab->eos_id, vocab->unk_id, vocab->pad_id}) {
    CHECK(!id.has_value() || static_cast<size_t>(*id) < vocab->tokens.size());
  }
}

void CheckConfig(GgufFile file) {
  GgufModel model;
  file.source.path = "input";
  if (!AddGgufTensors(file, model.tensors).ok()) return;
  // Without a file to read them from.
  for (const char* const name : {"rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight"}) {
    if (model.tensors.Find(name) != nullptr) return;
  }
  model.first = std::move(file);
  const Result<Json> config = GgufConfig(model);
  if (!config.ok()) return CheckMessage(config.status());
  const std::string text = WriteJson(*config);
  const Result<Json> again = ParseJson(text, "output");
  CHECK(again.ok() && WriteJson(*again) == text);
  CHECK(EosIds(*config, "input", nullptr, "").ok() || config->Find("eos_token_id")->as_array().size() > 1024);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const std::string_view header(reinterpret_cast<const char*>(data) + 2, size - 2);
  const int64_t data_bytes = 32 * (int64_t{data[0]} | int64_t{data[1]} << 8);
  const int64_t file_bytes = static_cast<int64_t>(header.size()) + data_bytes;
  Result<GgufFile> file = ParseGguf(header, file_bytes, "input");
  if (!file.ok()) {
    CheckMessage(file.status());
    return 0;
  }
  CheckFile(*file, file_bytes);
  CheckVocab(*file);
  CheckConfig(std::move(file).value());
  return 0;
}
