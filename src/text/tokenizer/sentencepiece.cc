#include "text/tokenizer/sentencepiece.h"

#include <algorithm>
#include <queue>
#include <unordered_map>

#include <fmt/format.h>

#include "text/tokenizer/valid_utf8.h"

namespace nunspark::text {
namespace {

using Kind = SpmPiece::Kind;

constexpr float kUnknownPenalty = 10.0f;
// Per byte after the first (measured on sentencepiece 0.2.3).
constexpr float kUserDefinedBonus = 0.1f;

// The 256 byte pieces, or nothing when there is no fallback.
std::vector<TokenId> ByteIds(const Vocabulary& vocabulary, bool byte_fallback) {
  std::vector<TokenId> ids;
  if (!byte_fallback) return ids;
  for (int byte = 0; byte < 256; ++byte) ids.push_back(vocabulary.Find(fmt::format("<0x{:02X}>", byte)));
  return ids;
}

// An id, an unknown part as its bytes, or as one unknown token for a run of unknown parts.
void Append(TokenId id, std::string_view part, TokenId unknown, const std::vector<TokenId>& bytes,
            std::vector<TokenId>& ids, bool& previous_unknown) {
  if (id != unknown) {
    ids.push_back(id);
    previous_unknown = false;
    return;
  }
  if (!bytes.empty()) {
    for (const char byte : part) ids.push_back(bytes[static_cast<uint8_t>(byte)]);
    previous_unknown = false;
    return;
  }
  if (!previous_unknown) ids.push_back(id);
  previous_unknown = true;
}

}  // namespace

SpmSymbols::SpmSymbols(std::span<const SpmPiece> pieces) {
  std::vector<DoubleArray::Key> keys;
  for (const SpmPiece& piece : pieces) {
    if (piece.kind == Kind::kUserDefined) keys.push_back({piece.text, 0});
  }
  trie_.Build(std::move(keys));
}

Result<size_t> SpmSymbols::Match(std::string_view text, WorkLimit& work) const {
  size_t longest = 0;
  RETURN_IF_ERROR(work.Spend(trie_.FindPrefixes(text, [&longest](size_t bytes, int32_t) { longest = bytes; })));
  return longest;
}

Result<SpmNormalizer::Unit> SpmNormalizer::Next(std::string_view text, WorkLimit& work) const {
  ASSIGN_OR_RETURN(const size_t symbol, symbols_->Match(text, work));
  if (symbol != 0) return Unit{text.substr(0, symbol), symbol};
  if (map_.has_value()) {
    const std::optional<Charsmap::Match> match = map_->FindLongest(text);
    if (match.has_value()) {
      RETURN_IF_ERROR(work.Spend(kStepsPerReplacedByte * match->replacement.size()));
      return Unit{match->replacement, match->bytes};
    }
  }
  const size_t bytes = ValidUtf8Length(text[0]);
  return Unit{text.substr(0, bytes), bytes};
}

Status SpmNormalizer::Run(std::string_view text, WorkLimit& work, std::string& out) const {
  const std::string_view space = options_.escape_spaces ? kSpmSpace : std::string_view(" ");
  if (options_.remove_extra_spaces) {
    while (!text.empty()) {
      ASSIGN_OR_RETURN(const Unit unit, Next(text, work));
      if (unit.normal != " ") break;
      text.remove_prefix(unit.bytes);
    }
  }
  if (text.empty()) return Status();
  if (options_.add_dummy_prefix && !options_.space_as_suffix) out += space;
  bool after_space = options_.remove_extra_spaces;
  while (!text.empty()) {
    ASSIGN_OR_RETURN(const Unit unit, Next(text, work));
    std::string_view normal = unit.normal;
    text.remove_prefix(unit.bytes);
    while (after_space && normal.starts_with(' ')) normal.remove_prefix(1);
    if (!normal.empty()) {
      for (const char c : normal) {
        if (c == ' ') {
          out += space;
        } else {
          out += c;
        }
      }
      after_space = normal.ends_with(' ');
    }
    if (!options_.remove_extra_spaces) after_space = false;
  }
  if (options_.remove_extra_spaces) {
    while (out.ends_with(space)) out.resize(out.size() - space.size());
  }
  if (options_.add_dummy_prefix && options_.space_as_suffix) out += space;
  return Status();
}

// The state of one piece of text.
struct SpmBpe::Run {
  std::string_view text;
  std::vector<Symbol> symbols;
  std::priority_queue<Pair> agenda;
  // How unused pieces came about, since they are taken apart again at the end.
  std::unordered_map<std::string_view, std::pair<Span, Span>, TextHasher> unused;

  std::string_view TextOf(Span span) const { return text.substr(span.begin, span.end - span.begin); }
};

SpmBpe::SpmBpe(const Vocabulary& vocabulary, std::span<const SpmPiece> pieces,
               std::shared_ptr<const SpmSymbols> symbols, const SpmModelOptions& options)
    : vocabulary_(vocabulary),
      symbols_(std::move(symbols)),
      options_(options),
      bytes_(ByteIds(vocabulary, options.byte_fallback)) {
  for (const SpmPiece& piece : pieces) {
    scores_.push_back(piece.score);
    kinds_.push_back(piece.kind);
  }
}

int64_t SpmBpe::memory_bytes() const {
  return static_cast<int64_t>(sizeof(*this) + scores_.capacity() * sizeof(float) + kinds_.capacity()) +
         symbols_->memory_bytes();
}

TokenId SpmBpe::FindMergeable(std::string_view text) const {
  const TokenId id = vocabulary_.Find(text);
  if (id == kNoToken) return kNoToken;
  const Kind kind = kinds_[static_cast<size_t>(id)];
  return kind == Kind::kNormal || kind == Kind::kUserDefined || kind == Kind::kUnused ? id : kNoToken;
}

Status SpmBpe::Encode(std::string_view text, std::span<const Span> pieces, EncodeScratch& scratch,
                      std::vector<TokenId>& ids) const {
  for (const Span& piece : pieces) {
    RETURN_IF_ERROR(EncodePiece(text.substr(piece.begin, piece.end - piece.begin), scratch.work, ids));
  }
  return Status();
}

void SpmBpe::Offer(Run& run, int32_t left, int32_t right) const {
  if (left < 0 || right < 0) return;
  const Symbol& a = run.symbols[static_cast<size_t>(left)];
  const Symbol& b = run.symbols[static_cast<size_t>(right)];
  if (a.frozen || b.frozen) return;
  const std::string_view joined = run.TextOf({a.span.begin, b.span.end});
  const TokenId id = FindMergeable(joined);
  if (id == kNoToken) return;
  run.agenda.push({scores_[static_cast<size_t>(id)], left, right, static_cast<uint32_t>(joined.size())});
  if (kinds_[static_cast<size_t>(id)] == Kind::kUnused) run.unused[joined] = {a.span, b.span};
}

Status SpmBpe::EncodePiece(std::string_view text, WorkLimit& work, std::vector<TokenId>& ids) const {
  Run run;
  run.text = text;
  for (uint32_t at = 0; at < text.size();) {
    ASSIGN_OR_RETURN(const size_t symbol, symbols_->Match(text.substr(at), work));
    const uint32_t bytes = symbol != 0 ? static_cast<uint32_t>(symbol) : ValidUtf8Length(text[at]);
    const int32_t index = static_cast<int32_t>(run.symbols.size());
    run.symbols.push_back({{at, at + bytes}, index - 1, index + 1, symbol != 0});
    at += bytes;
  }
  if (run.symbols.empty()) return Status();
  run.symbols.back().next = -1;
  for (int32_t i = 1; i < static_cast<int32_t>(run.symbols.size()); ++i) Offer(run, i - 1, i);
  const auto size_of = [](const Symbol& symbol) { return symbol.span.end - symbol.span.begin; };
  while (!run.agenda.empty()) {
    const Pair top = run.agenda.top();
    run.agenda.pop();
    Symbol& left = run.symbols[static_cast<size_t>(top.left)];
    Symbol& right = run.symbols[static_cast<size_t>(top.right)];
    if (size_of(left) == 0 || size_of(right) == 0 || size_of(left) + size_of(right) != top.bytes) continue;
    RETURN_IF_ERROR(work.Spend(top.bytes / 8));  // what is hashed to look for the next pairs
    left.span.end = right.span.end;
    left.next = right.next;
    if (right.next >= 0) run.symbols[static_cast<size_t>(right.next)].previous = top.left;
    right.span.begin = right.span.end;  // gone
    Offer(run, left.previous, top.left);
    Offer(run, top.left, left.next);
  }
  bool previous_unknown = false;
  for (int32_t i = 0; i >= 0; i = run.symbols[static_cast<size_t>(i)].next) {
    AppendSegment(run, run.symbols[static_cast<size_t>(i)].span, ids, previous_unknown);
  }
  return Status();
}

// Unused pieces are taken apart the way they were made; an explicit stack, since they may nest.
void SpmBpe::AppendSegment(const Run& run, Span span, std::vector<TokenId>& ids, bool& previous_unknown) const {
  std::vector<Span> waiting{span};
  while (!waiting.empty()) {
    const Span part = waiting.back();
    waiting.pop_back();
    const std::string_view text = run.TextOf(part);
    TokenId id = vocabulary_.Find(text);
    if (id == kNoToken) id = options_.unknown;
    if (kinds_[static_cast<size_t>(id)] == Kind::kUnused) {
      const auto found = run.unused.find(text);
      if (found != run.unused.end()) {
        waiting.push_back(found->second.second);
        waiting.push_back(found->second.first);
        continue;
      }
    }
    Append(id, text, options_.unknown, bytes_, ids, previous_unknown);
  }
}

SpmUnigram::SpmUnigram(const Vocabulary& vocabulary, std::span<const SpmPiece> pieces, const SpmModelOptions& options)
    : options_(options), bytes_(ByteIds(vocabulary, options.byte_fallback)) {
  bool any = false;
  float score_min = 0;
  std::vector<DoubleArray::Key> keys;
  for (size_t id = 0; id < pieces.size(); ++id) {
    const SpmPiece& piece = pieces[id];
    scores_.push_back(piece.score);
    kinds_.push_back(piece.kind);
    if (piece.kind == Kind::kNormal) {
      score_min = any ? std::min(score_min, piece.score) : piece.score;
      any = true;
    }
    if (piece.kind == Kind::kNormal || piece.kind == Kind::kUserDefined || piece.kind == Kind::kUnused) {
      keys.push_back({piece.text, static_cast<int32_t>(id)});
    }
  }
  unknown_score_ = score_min - kUnknownPenalty;
  trie_.Build(std::move(keys));
}

int64_t SpmUnigram::memory_bytes() const {
  return static_cast<int64_t>(sizeof(*this) + scores_.capacity() * sizeof(float) + kinds_.capacity()) +
         trie_.memory_bytes();
}

Status SpmUnigram::Encode(std::string_view text, std::span<const Span> pieces, EncodeScratch& scratch,
                          std::vector<TokenId>& ids) const {
  for (const Span& piece : pieces) {
    RETURN_IF_ERROR(EncodePiece(text.substr(piece.begin, piece.end - piece.begin), scratch.work, ids));
  }
  return Status();
}

Status SpmUnigram::EncodePiece(std::string_view text, WorkLimit& work, std::vector<TokenId>& ids) const {
  std::vector<Node> best(text.size() + 1);
  const auto offer = [&best](size_t begin, size_t end, float score, TokenId id) {
    Node& node = best[end];
    if (node.start != -1 && !(score > node.score)) return;
    node = {score, static_cast<int32_t>(begin), id};
  };
  for (size_t begin = 0; begin < text.size();) {
    const size_t character_bytes = ValidUtf8Length(text[begin]);
    const float till_here = best[begin].score;
    bool has_single = false;
    const size_t steps = trie_.FindPrefixes(text.substr(begin), [&](size_t bytes, int32_t id) {
      const Kind kind = kinds_[static_cast<size_t>(id)];
      if (kind == Kind::kUnused) return;
      // Long user-defined symbols win over short ones, and all of them over what is learnt.
      const float score = kind == Kind::kUserDefined ? static_cast<float>(bytes - 1) * kUserDefinedBonus
                                                     : scores_[static_cast<size_t>(id)];
      offer(begin, begin + bytes, score + till_here, id);
      has_single = has_single || bytes == character_bytes;
    });
    RETURN_IF_ERROR(work.Spend(steps));
    if (!has_single) {
      offer(begin, begin + character_bytes, unknown_score_ + till_here, options_.unknown);
    }
    begin += character_bytes;
  }
  std::vector<size_t> ends;
  for (size_t end = text.size(); end > 0; end = static_cast<size_t>(best[end].start)) ends.push_back(end);
  bool previous_unknown = false;
  for (auto end = ends.rbegin(); end != ends.rend(); ++end) {
    const Node& node = best[*end];
    const size_t begin = static_cast<size_t>(node.start);
    Append(node.id, text.substr(begin, *end - begin), options_.unknown, bytes_, ids, previous_unknown);
  }
  return Status();
}

}  // namespace nunspark::text
