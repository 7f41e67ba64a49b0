// ModelFiles as the folders above the engine see it (inspect, the packer's front end, benchmarks).
#ifndef NUNSPARK_ENGINE_MODEL_FILES_H_
#define NUNSPARK_ENGINE_MODEL_FILES_H_

#include <memory>
#include <string>
#include <vector>

#include "formats/checkpoint.h"
#include "models/model_layout.h"
#include "nunspark/engine.h"
#include "text/chat/chat_template.h"
#include "text/tokenizer/tokenizer.h"

namespace nunspark {

class ModelFilesImpl : public ModelFiles {
 public:
  static Result<std::unique_ptr<ModelFilesImpl>> OpenFolder(const std::string& folder);

  const std::string& folder() const override { return checkpoint_.folder; }
  std::string_view model_type() const override { return layout_.spec->name; }
  int64_t vocab_size() const override { return layout_.hparams.vocab_size; }
  int64_t max_context() const override { return layout_.hparams.max_positions; }
  int64_t weight_bytes() const override { return layout_.total_bytes; }
  bool has_tokenizer() const override { return tokenizer_ != nullptr; }
  Result<std::vector<int32_t>> Encode(std::string_view text) const override;
  Result<std::vector<int32_t>> EncodeWithSpecials(std::string_view text) const override;
  Result<std::string> Decode(std::span<const int32_t> ids, bool skip_special) const override;
  Result<std::string> FormatChat(std::string_view context_json) const override;
  const std::vector<int32_t>& stop_ids() const override { return stop_ids_; }
  Result<std::unique_ptr<TextStream>> NewTextStream(std::vector<std::string> stops) const override;

  const Checkpoint& checkpoint() const { return checkpoint_; }
  const ModelLayout& layout() const { return layout_; }
  // Of the chat template that requests with tools use, as it stands in the model; empty: none.
  const std::string& template_text() const { return template_text_; }
  const text::Tokenizer* tokenizer() const { return tokenizer_.get(); }  // nullptr: none

 private:
  Status LoadText(const std::string& path);
  void CollectStopIds();
  Result<const text::Tokenizer*> RequireTokenizer() const;

  Checkpoint checkpoint_;
  ModelLayout layout_;
  std::unique_ptr<text::Tokenizer> tokenizer_;
  std::unique_ptr<text::ChatTemplate> template_;
  std::unique_ptr<text::ChatTemplate> tool_use_template_;
  Status template_status_;  // why there is no template_
  std::string template_text_;
  Json special_tokens_;
  std::vector<int32_t> stop_ids_;
};

}  // namespace nunspark

#endif  // NUNSPARK_ENGINE_MODEL_FILES_H_
