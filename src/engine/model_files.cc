#include "engine/model_files.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/json.h"
#include "engine/model_text.h"
#include "formats/gguf_model.h"
#include "text/chat/chat_format_lines.h"
#include "text/stop_strings.h"

namespace nunspark {
namespace {

// Specials by which published vocabularies end a turn or a text. Only those that the tokenizer marks as special count.
constexpr std::string_view kEndTokens[] = {
    "<|endoftext|>",       "<|im_end|>", "<|eot_id|>", "<|end_of_text|>", "<end_of_turn>", "<|endofturn|>",
    "<|end_of_sentence|>", "</s>",       "<eos>",      "<|end_of_turn|>", "<|eos|>"};

class TokenTextStream : public ModelFiles::TextStream {
 public:
  TokenTextStream(const text::Tokenizer& tokenizer, std::vector<std::string> stops)
      : decoder_(tokenizer, text::SkipSpecials::kYes), stops_(std::move(stops)) {}
  std::string Push(int32_t token) override { return stops_.Push(decoder_.Push(token)); }
  std::string Finish() override {
    const std::string last = stops_.Push(decoder_.Finish());
    return last + stops_.Finish();
  }
  bool stopped() const override { return stops_.matched(); }
  const std::string& stop() const override { return stops_.match(); }

 private:
  text::StreamDecoder decoder_;
  text::StopStrings stops_;
};

}  // namespace

Result<std::unique_ptr<ModelFiles>> ModelFiles::Open(const std::string& folder) {
  ASSIGN_OR_RETURN(std::unique_ptr<ModelFilesImpl> files, ModelFilesImpl::OpenFolder(folder));
  return std::unique_ptr<ModelFiles>(std::move(files));
}

Result<std::unique_ptr<ModelFilesImpl>> ModelFilesImpl::OpenFolder(const std::string& folder) {
  std::unique_ptr<ModelFilesImpl> files(new ModelFilesImpl);
  ASSIGN_OR_RETURN(files->checkpoint_, OpenCheckpoint(folder));
  ASSIGN_OR_RETURN(files->layout_, ResolveModel(files->checkpoint_));
  // Of a split GGUF model any part may be named; the first has the vocabulary.
  RETURN_IF_ERROR(files->LoadText(IsGgufName(folder) ? files->checkpoint_.gguf_path : folder));
  files->CollectStopIds();
  return files;
}

Status ModelFilesImpl::LoadText(const std::string& path) {
  Result<std::unique_ptr<text::Tokenizer>> tokenizer = OpenTokenizer(path);
  // A model without a tokenizer still runs on token ids; a broken one is an error.
  if (!tokenizer.ok() && tokenizer.status().code() != StatusCode::kNotFound) return tokenizer.status();
  if (tokenizer.ok()) tokenizer_ = std::move(tokenizer).value();

  Result<text::ChatSource> chat = OpenChatSource(path);
  if (!chat.ok()) {
    template_status_ = chat.status();
    return chat.status().code() == StatusCode::kNotFound ? Status() : chat.status();
  }
  special_tokens_ = std::move(chat->special_tokens);
  template_status_ = chat->status;
  template_text_ = chat->tool_use.value_or(chat->standard);
  const auto parse = [&](const std::string& source) {
    text::TemplateError error;
    std::unique_ptr<text::ChatTemplate> parsed = text::ChatTemplate::Parse(source, &error);
    if (parsed == nullptr) {
      template_status_ = DataLossError(fmt::format("{}: chat template: {}: {}", path, error.type, error.message));
    }
    return parsed;
  };
  if (chat->status.ok()) template_ = parse(chat->standard);
  if (chat->tool_use.has_value()) tool_use_template_ = parse(*chat->tool_use);
  return Status();
}

void ModelFilesImpl::CollectStopIds() {
  stop_ids_ = checkpoint_.eos_ids;
  if (tokenizer_ != nullptr) {
    std::vector<std::string_view> names(std::begin(kEndTokens), std::end(kEndTokens));
    const Json* const own = special_tokens_.Find("eos_token");
    if (own != nullptr && own->is_string()) names.push_back(own->as_string());
    for (const std::string_view name : names) {
      const std::optional<text::TokenId> id = tokenizer_->FindToken(name);
      const bool is_own = own != nullptr && own->is_string() && name == own->as_string();
      if (id && (is_own || tokenizer_->IsSpecial(*id))) stop_ids_.push_back(*id);
    }
  }
  std::sort(stop_ids_.begin(), stop_ids_.end());
  stop_ids_.erase(std::unique(stop_ids_.begin(), stop_ids_.end()), stop_ids_.end());
}

Result<const text::Tokenizer*> ModelFilesImpl::RequireTokenizer() const {
  if (tokenizer_ != nullptr) return tokenizer_.get();
  return NotFoundError(fmt::format("{} has no tokenizer; give token ids with --prompt-ids", folder()));
}

Result<std::vector<int32_t>> ModelFilesImpl::Encode(std::string_view text) const {
  ASSIGN_OR_RETURN(const text::Tokenizer* tokenizer, RequireTokenizer());
  return tokenizer->Encode(text, text::AddSpecials::kNo);
}

Result<std::vector<int32_t>> ModelFilesImpl::EncodeWithSpecials(std::string_view text) const {
  ASSIGN_OR_RETURN(const text::Tokenizer* tokenizer, RequireTokenizer());
  ASSIGN_OR_RETURN(std::vector<int32_t> plain, tokenizer->Encode(text, text::AddSpecials::kNo));
  ASSIGN_OR_RETURN(std::vector<int32_t> with, tokenizer->Encode(text, text::AddSpecials::kYes));
  const bool begins_so = with.size() > plain.size() && !plain.empty() && with.front() == plain.front();
  return begins_so ? plain : with;
}

Result<std::string> ModelFilesImpl::Decode(std::span<const int32_t> ids, bool skip_special) const {
  ASSIGN_OR_RETURN(const text::Tokenizer* tokenizer, RequireTokenizer());
  return tokenizer->Decode(ids, skip_special ? text::SkipSpecials::kYes : text::SkipSpecials::kNo);
}

Result<std::string> ModelFilesImpl::FormatChat(std::string_view context_json) const {
  const text::ChatTemplate* chosen = template_.get();
  if (tool_use_template_ != nullptr) {
    ASSIGN_OR_RETURN(const Json context, ParseJson(context_json, "chat context"));
    const Json* const tools = context.Find("tools");
    if (tools != nullptr && !tools->is_null()) chosen = tool_use_template_.get();
  }
  if (chosen == nullptr) return template_status_;
  std::string output;
  text::TemplateError error;
  // As text, not as a tree: integers of any size stay exact.
  const text::RenderLimits limits = text::RenderLimits::ForContext(context_json.size());
  if (!chosen->RenderJsonText(context_json, text::LocalTimeNow(), &output, &error, limits, special_tokens_)) {
    return InvalidArgumentError(fmt::format("chat template: {}: {}", error.type, error.message));
  }
  return output;
}

Result<std::unique_ptr<ModelFiles::TextStream>> ModelFilesImpl::NewTextStream(std::vector<std::string> stops) const {
  ASSIGN_OR_RETURN(const text::Tokenizer* tokenizer, RequireTokenizer());
  return std::unique_ptr<TextStream>(new TokenTextStream(*tokenizer, std::move(stops)));
}

}  // namespace nunspark
