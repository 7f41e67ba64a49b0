#include "text/tokenizer/pipeline.h"

#include <algorithm>

#include <fmt/format.h>
#include <simdjson.h>

#include "base/utf8.h"
#include "text/tokenizer/byte_level.h"

namespace nunspark::text {

// Buffers of one Encode call.
struct PipelineTokenizer::Work {
  explicit Work(size_t text_bytes) : limit(text_bytes) { pieces.work = scratch.work = limit; }

  WorkLimit limit;  // of what comes before the pieces
  std::vector<Segment> raw_segments;
  std::vector<Segment> normalized_segments;
  std::string normalized;
  PieceList pieces;
  EncodeScratch scratch;
};

PipelineTokenizer::PipelineTokenizer(PipelineParts parts) : parts_(std::move(parts)) {}

Result<std::vector<TokenId>> PipelineTokenizer::Encode(std::string_view text, AddSpecials add_specials) const {
  std::vector<TokenId> ids;
  RETURN_IF_ERROR(EncodeText(text, ids));
  std::vector<TokenId> whole;
  whole.reserve(ids.size() + 8);
  parts_.post_processor.Run(ids, add_specials, whole);
  return whole;
}

Result<std::vector<TokenId>> PipelineTokenizer::EncodePair(std::string_view first, std::string_view second,
                                                           AddSpecials add_specials) const {
  std::vector<TokenId> first_ids;
  std::vector<TokenId> second_ids;
  RETURN_IF_ERROR(EncodeText(first, first_ids));
  RETURN_IF_ERROR(EncodeText(second, second_ids));
  std::vector<TokenId> whole;
  parts_.post_processor.RunPair(first_ids, second_ids, add_specials, whole);
  return whole;
}

Status PipelineTokenizer::EncodeText(std::string_view text, std::vector<TokenId>& ids) const {
  if (text.size() > kTextBytesMax) {
    return InvalidArgumentError(
        fmt::format("expected a text of at most {} bytes, found {}", kTextBytesMax, text.size()));
  }
  std::string repaired;
  if (!simdjson::validate_utf8(text.data(), text.size())) {
    repaired = RepairUtf8(text);
    text = repaired;
  }
  ids.reserve(text.size() / 4 + 4);
  Work work(text.size());
  RETURN_IF_ERROR(parts_.added.Extract(AddedTokens::Stage::kRawText, text, work.limit, work.raw_segments));
  for (const Segment& segment : work.raw_segments) {
    if (segment.id != kNoToken) {
      ids.push_back(segment.id);
      continue;
    }
    const std::string_view part = text.substr(segment.span.begin, segment.span.end - segment.span.begin);
    ASSIGN_OR_RETURN(const Normalizer::Normalized normal, parts_.normalizer.Run(part, work.limit, work.normalized));
    const uint32_t origin_end = segment.span.begin == 0 ? normal.origin_end : 0;
    RETURN_IF_ERROR(EncodeNormalized(normal.text, origin_end, work, ids));
  }
  return Status();
}

Status PipelineTokenizer::EncodeNormalized(std::string_view text, uint32_t origin_end, Work& work,
                                           std::vector<TokenId>& ids) const {
  if (!parts_.added.AnyFor(AddedTokens::Stage::kNormalizedText)) return EncodePieces(text, origin_end, work, ids);
  work.normalized_segments.clear();
  RETURN_IF_ERROR(
      parts_.added.Extract(AddedTokens::Stage::kNormalizedText, text, work.limit, work.normalized_segments));
  for (const Segment& segment : work.normalized_segments) {
    if (segment.id != kNoToken) {
      ids.push_back(segment.id);
      continue;
    }
    const std::string_view part = text.substr(segment.span.begin, segment.span.end - segment.span.begin);
    const uint32_t origin_left = origin_end > segment.span.begin ? origin_end - segment.span.begin : 0;
    RETURN_IF_ERROR(EncodePieces(part, origin_left, work, ids));
  }
  return Status();
}

Status PipelineTokenizer::EncodePieces(std::string_view text, uint32_t origin_end, Work& work,
                                       std::vector<TokenId>& ids) const {
  RETURN_IF_ERROR(parts_.pre_tokenizer.Run(text, origin_end, work.pieces));
  return parts_.model->Encode(work.pieces.text, work.pieces.pieces, work.scratch, ids);
}

std::string PipelineTokenizer::Decode(std::span<const TokenId> ids, SkipSpecials skip_specials) const {
  std::string text;
  const std::unique_ptr<DecodeRun> run = parts_.decoder.NewRun();
  for (const TokenId id : ids) {
    const std::string_view token = TokenText(id);
    if (token.data() == nullptr) continue;
    if (skip_specials == SkipSpecials::kYes && IsSpecial(id)) continue;
    run->Push(token, text);
  }
  run->Finish(text);
  return text;
}

std::string_view PipelineTokenizer::TokenText(TokenId id) const {
  const AddedToken* added = parts_.added.ById(id);
  return added != nullptr ? std::string_view(added->text) : parts_.vocabulary->Text(id);
}

std::optional<TokenId> PipelineTokenizer::FindToken(std::string_view token_text) const {
  TokenId id = parts_.added.Find(token_text);
  if (id == kNoToken) id = parts_.vocabulary->Find(token_text);
  if (id == kNoToken) return std::nullopt;
  return id;
}

Status PipelineTokenizer::AppendRunningBytes(TokenId id, std::string& out) const {
  return parts_.decoder.AppendRunningBytes(TokenText(id), out);
}

TokenId PipelineTokenizer::vocab_size() const { return std::max(parts_.vocabulary->id_end(), parts_.added.id_end()); }

bool PipelineTokenizer::IsSpecial(TokenId id) const {
  if (parts_.added.IsSpecialId(id)) return true;
  return id >= 0 && static_cast<size_t>(id) < parts_.control_ids.size() && parts_.control_ids[static_cast<size_t>(id)];
}

int64_t PipelineTokenizer::memory_bytes() const {
  return static_cast<int64_t>(sizeof(*this)) + parts_.vocabulary->memory_bytes() +
         (parts_.raw_keys != nullptr ? parts_.raw_keys->memory_bytes() : 0) + parts_.added.memory_bytes() +
         parts_.normalizer.memory_bytes() + parts_.model->memory_bytes();
}

std::unique_ptr<DecodeRun> PipelineTokenizer::NewDecodeRun() const { return parts_.decoder.NewRun(); }

std::unique_ptr<Vocabulary> RawKeysOf(const Vocabulary& visible) {
  auto raw = std::make_unique<Vocabulary>();
  raw->Reserve(static_cast<size_t>(visible.id_end()), static_cast<size_t>(visible.id_end()) * 8);
  std::string bytes;
  for (TokenId id = 0; id < visible.id_end(); ++id) {
    bytes.clear();
    if (visible.Contains(id) && AppendByteLevelDecoded(visible.Text(id), bytes)) raw->Insert(bytes, id);
  }
  raw->ShrinkToFit();
  return raw;
}

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, SkipSpecials skip_specials)
    : tokenizer_(tokenizer), skip_specials_(skip_specials), run_(tokenizer.NewDecodeRun()) {}
StreamDecoder::StreamDecoder(StreamDecoder&&) noexcept = default;
StreamDecoder::~StreamDecoder() = default;

std::string StreamDecoder::Push(TokenId id) {
  std::string text;
  if (skip_specials_ == SkipSpecials::kYes && tokenizer_.IsSpecial(id)) return text;
  const std::string_view token = tokenizer_.TokenText(id);
  if (token.data() != nullptr) run_->Push(token, text);
  return text;
}

std::string StreamDecoder::Finish() {
  std::string text;
  run_->Finish(text);
  return text;
}

}  // namespace nunspark::text
