#include "text/grammar/compiled_grammar.h"

#include <algorithm>

#include <fmt/format.h>

namespace nunspark::text {
namespace {

// Places a matcher may visit for one set of tokens, some tenths of a second. A grammar that is so ambiguous gets the
// tokens found by then, and those of a single byte.
constexpr uint64_t kMostWork = 8 << 20;
// Sets with fewer tokens than one in so many are kept as lists.
constexpr size_t kFewShare = 32;

void Set(std::vector<uint32_t>& bits, TokenId id) { bits[static_cast<size_t>(id) / 32] |= 1u << (id % 32); }
void Clear(std::vector<uint32_t>& bits, TokenId id) { bits[static_cast<size_t>(id) / 32] &= ~(1u << (id % 32)); }

}  // namespace

// Where one output is in the grammar.
class CompiledGrammar::Constraint final : public TokenConstraint {
 public:
  explicit Constraint(std::shared_ptr<CompiledGrammar> grammar) : grammar_(std::move(grammar)) {
    const std::scoped_lock lock(grammar_->mutex_);
    state_ = grammar_->matcher_->start();
    grammar_->constraints_.push_back(this);
  }
  ~Constraint() override {
    const std::scoped_lock lock(grammar_->mutex_);
    std::erase(grammar_->constraints_, this);
  }
  Constraint(const Constraint&) = delete;
  Constraint& operator=(const Constraint&) = delete;

  void Allowed(std::span<uint32_t> bits) override {
    std::fill(bits.begin(), bits.end(), 0);
    const auto set = [&](TokenId id) {
      if (static_cast<size_t>(id) / 32 < bits.size()) bits[static_cast<size_t>(id) / 32] |= 1u << (id % 32);
    };
    bool any = false;
    const std::scoped_lock lock(grammar_->mutex_);  // another output's thread may compact the states
    if (state_ != Matcher::kDead) {
      const Mask& mask = grammar_->MaskOf(state_, at_start_);
      std::copy_n(mask.bits.begin(), std::min(mask.bits.size(), bits.size()), bits.begin());
      for (const TokenId id : mask.few) set(id);
      any = !mask.bits.empty() || !mask.few.empty();
    }
    if (any) return;
    for (const TokenId id : grammar_->vocabulary_->end_tokens()) set(id);
  }

  void Advance(int32_t token) override {
    const GrammarVocabulary& vocabulary = *grammar_->vocabulary_;
    const std::scoped_lock lock(grammar_->mutex_);
    if (state_ == Matcher::kDead) return;
    if (token < 0 || token >= vocabulary.size()) {
      state_ = Matcher::kDead;
    } else if (vocabulary.Bytes(token).empty()) {
      // The end, which no literal names, leads nowhere; neither does any other token that was not allowed.
      state_ = grammar_->matcher_->StepToken(state_, token);
    } else {
      const std::string_view bytes = at_start_ ? vocabulary.BytesAtStart(token) : vocabulary.Bytes(token);
      state_ = grammar_->StepAll(state_, bytes, vocabulary.IsSpelledOnly(token) ? Spelled::kYes : Spelled::kNo);
    }
    at_start_ = false;
    if (grammar_->matcher_->memory_bytes() > kMostMatcherBytes) grammar_->Compact();
  }

 private:
  friend class CompiledGrammar;

  const std::shared_ptr<CompiledGrammar> grammar_;  // every output keeps its grammar alive
  Matcher::State state_ = Matcher::kDead;
  bool at_start_ = true;
};

CompiledGrammar::CompiledGrammar(std::shared_ptr<const GrammarVocabulary> vocabulary, Automaton automaton)
    : vocabulary_(std::move(vocabulary)),
      automaton_(std::move(automaton)),
      matcher_(std::make_unique<Matcher>(automaton_)) {}

Result<std::shared_ptr<CompiledGrammar>> CompiledGrammar::Compile(std::shared_ptr<const GrammarVocabulary> vocabulary,
                                                                  const GrammarPart& part) {
  Grammar grammar;
  ASSIGN_OR_RETURN(const ExprId body, AddPart(part, *vocabulary, grammar));
  const RuleId root = grammar.NewRule("the output");
  grammar.Define(root, body);
  ASSIGN_OR_RETURN(Automaton automaton, Automaton::Compile(grammar, root));
  std::shared_ptr<CompiledGrammar> compiled(new CompiledGrammar(std::move(vocabulary), std::move(automaton)));
  RETURN_IF_ERROR(compiled->CheckVocabulary());
  return compiled;
}

// An output must not end where it may not because no token goes on. Where one of the bytes that may come is a token,
// it can; vocabularies without a token for each byte have tokens for whole characters, which begin at one of these.
Status CompiledGrammar::CheckVocabulary() const {
  bool has_all = true;
  for (uint32_t byte = 0; byte < 256; ++byte) has_all = has_all && vocabulary_->HasByte(static_cast<uint8_t>(byte));
  if (has_all) return Status();
  for (size_t i = 0; i < automaton_.node_count(); ++i) {
    const Automaton::Node& node = automaton_.node(static_cast<Automaton::NodeId>(i));
    if (node.kind != Automaton::Kind::kBytes) continue;
    bool ascii = false;
    bool has_one = false;
    for (const Automaton::Edge& edge : automaton_.edges(node)) {
      for (uint32_t byte = edge.first; byte <= edge.last; ++byte) {
        ascii = ascii || byte < 0x80;
        has_one = has_one || vocabulary_->HasByte(static_cast<uint8_t>(byte));
      }
    }
    if (has_one || !ascii) continue;
    return UnsupportedError(
        fmt::format("the model's vocabulary has no token for byte 0x{:02X}, which the grammar needs",
                    automaton_.edges(node)[0].first));
  }
  return Status();
}

std::shared_ptr<TokenConstraint> CompiledGrammar::NewConstraint() {
  return std::make_shared<Constraint>(shared_from_this());
}

const CompiledGrammar::Mask& CompiledGrammar::MaskOf(Matcher::State state, bool at_start) {
  const Matcher::State canonical = matcher_->Canonical(state, vocabulary_->longest_bytes());
  const uint64_t key = uint64_t{canonical} << 1 | (at_start ? 1 : 0);
  const auto found = masks_by_key_.find(key);
  if (found != masks_by_key_.end()) {
    masks_.splice(masks_.begin(), masks_, found->second);
    return masks_.front();
  }
  masks_.push_front(ComputeMask(canonical, at_start));
  masks_.front().key = key;
  masks_by_key_[key] = masks_.begin();
  mask_bytes_ += masks_.front().bytes();
  while (mask_bytes_ > kMostMaskBytes && masks_.size() > 1) {
    mask_bytes_ -= masks_.back().bytes();
    masks_by_key_.erase(masks_.back().key);
    masks_.pop_back();
  }
  return masks_.front();
}

CompiledGrammar::Mask CompiledGrammar::ComputeMask(Matcher::State state, bool at_start) {
  const uint64_t work_end = matcher_->work() + kMostWork;
  std::vector<uint32_t> bits;
  // In a string nearly all tokens are plain characters, and all of those may come: only the others are looked at.
  const Matcher::PlainRun run = matcher_->Plain(state);
  const std::span<const GrammarVocabulary::PlainToken> plain = vocabulary_->plain();
  if (run.most > 0 && (run.exact || plain.empty() || run.most >= plain[0].chars)) {
    bits.assign(vocabulary_->plain_bits().begin(), vocabulary_->plain_bits().end());
    for (const GrammarVocabulary::PlainToken token : plain) {
      if (token.chars <= run.most) break;
      Clear(bits, token.id);
    }
    Walk(vocabulary_->mixed(), state, work_end, bits);
  } else {
    bits.resize(vocabulary_->plain_bits().size());
    Walk(vocabulary_->all(), state, work_end, bits);
  }
  for (const TokenId id : vocabulary_->spelled_only()) {
    if (StepAll(state, vocabulary_->Bytes(id), Spelled::kYes) != Matcher::kDead) Set(bits, id);
  }
  if (at_start) {
    for (const GrammarVocabulary::StartToken& token : vocabulary_->start_tokens()) {
      const Spelled only = vocabulary_->IsSpelledOnly(token.id) ? Spelled::kYes : Spelled::kNo;
      // A lone space that is lost leaves the state as it is, and the next token is no longer the first.
      StepAll(state, token.bytes, only) != Matcher::kDead ? Set(bits, token.id) : Clear(bits, token.id);
    }
  }
  Mask mask;
  matcher_->AppendTokens(state, mask.few);
  for (const TokenId id : mask.few) Set(bits, id);
  mask.few.clear();
  if (matcher_->accepts(state)) {
    for (const TokenId id : vocabulary_->end_tokens()) Set(bits, id);
  }
  size_t count = 0;
  for (const uint32_t word : bits) count += static_cast<size_t>(__builtin_popcount(word));
  if (count * kFewShare >= static_cast<size_t>(vocabulary_->size())) {
    mask.bits = std::move(bits);
    return mask;
  }
  mask.few.reserve(count);
  for (TokenId id = 0; id < vocabulary_->size(); ++id) {
    if ((bits[static_cast<size_t>(id) / 32] >> (id % 32) & 1) != 0) mask.few.push_back(id);
  }
  return mask;
}

void CompiledGrammar::Walk(const TokenTrie& trie, Matcher::State state, uint64_t work_end,
                           std::vector<uint32_t>& bits) {
  path_.resize(vocabulary_->longest_bytes() + 1);
  path_[0] = state;
  for (size_t i = 0; i < trie.nodes.size();) {
    const TokenTrie::Node& node = trie.nodes[i];
    const Matcher::State next = matcher_->Step(path_[node.depth - 1u], node.byte);
    if (next == Matcher::kDead) {
      i = node.after;
      continue;
    }
    path_[node.depth] = next;
    for (const TokenId id : trie.TokensOf(i)) Set(bits, id);
    i = matcher_->work() < work_end && matcher_->memory_bytes() < 2 * kMostMatcherBytes ? i + 1 : node.after;
  }
}

Matcher::State CompiledGrammar::StepAll(Matcher::State state, std::string_view bytes, Spelled only) {
  for (const char c : bytes) {
    const auto byte = static_cast<uint8_t>(c);
    state = only == Spelled::kYes ? matcher_->StepSpelled(state, byte) : matcher_->Step(state, byte);
    if (state == Matcher::kDead) break;
  }
  return state;
}

void CompiledGrammar::Compact() {
  auto fresh = std::make_unique<Matcher>(automaton_);
  for (Constraint* constraint : constraints_) constraint->state_ = fresh->Import(*matcher_, constraint->state_);
  // Sets of tokens keep their worth where their state still has a number; that of the old matcher says nothing now.
  std::list<Mask> masks = std::move(masks_);
  masks_.clear();
  masks_by_key_.clear();
  for (auto mask = masks.begin(); mask != masks.end();) {
    const auto next = std::next(mask);
    const Matcher::State state = fresh->Import(*matcher_, static_cast<Matcher::State>(mask->key >> 1));
    mask->key = uint64_t{state} << 1 | (mask->key & 1);
    masks_.splice(masks_.end(), masks, mask);
    masks_by_key_[masks_.back().key] = std::prev(masks_.end());
    mask = next;
  }
  matcher_ = std::move(fresh);
  if (matcher_->memory_bytes() <= kMostMatcherBytes / 2) return;
  // Even what is kept is much: then only what outputs need.
  masks_.clear();
  masks_by_key_.clear();
  mask_bytes_ = 0;
  fresh = std::make_unique<Matcher>(automaton_);
  for (Constraint* constraint : constraints_) constraint->state_ = fresh->Import(*matcher_, constraint->state_);
  matcher_ = std::move(fresh);
}

int64_t CompiledGrammar::memory_bytes() const {
  const std::scoped_lock lock(mutex_);
  return automaton_.memory_bytes() + matcher_->memory_bytes() + mask_bytes_;
}

Result<std::shared_ptr<CompiledGrammar>> GrammarCache::Get(const GrammarPart& part) {
  std::string key;
  AppendKey(part, key);
  {
    const std::scoped_lock lock(mutex_);
    const auto found = by_key_.find(key);
    if (found != by_key_.end()) {
      entries_.splice(entries_.begin(), entries_, found->second);
      return entries_.front().grammar;
    }
  }
  ASSIGN_OR_RETURN(std::shared_ptr<CompiledGrammar> grammar, CompiledGrammar::Compile(vocabulary_, part));
  const std::scoped_lock lock(mutex_);
  // Another thread may have been faster: its grammar has learned something already.
  const auto found = by_key_.find(key);
  if (found != by_key_.end()) return found->second->grammar;
  const int64_t most = grammar->memory_bytes_max() + static_cast<int64_t>(key.size());
  entries_.push_front({std::move(key), grammar});
  by_key_[entries_.front().key] = entries_.begin();
  bytes_ += most;
  while (bytes_ > most_bytes_ && entries_.size() > 1) {
    bytes_ -= entries_.back().grammar->memory_bytes_max() + static_cast<int64_t>(entries_.back().key.size());
    by_key_.erase(entries_.back().key);
    entries_.pop_back();
  }
  return grammar;
}

}  // namespace nunspark::text
