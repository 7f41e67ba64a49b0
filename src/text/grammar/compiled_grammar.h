// CompiledGrammar: a grammar over one vocabulary, ready to say which tokens may come next.
//
// Immutable to its users and thread-safe: what it learns while outputs follow it (states of the matcher, sets of
// allowed tokens) is shared by all of them under one lock, and bounded by kMostMatcherBytes and kMostMaskBytes.
//
//   ASSIGN_OR_RETURN(auto vocabulary, GrammarVocabulary::Create(tokenizer, {.end_tokens = eos_ids}));   // per model
//   GrammarCache cache(vocabulary, 64 << 20);
//   ASSIGN_OR_RETURN(auto grammar, cache.Get(GrammarPart::JsonSchema(schema_text)));                    // per request
//   options.constraint = grammar->NewConstraint();                                                      // per output
#ifndef NUNSPARK_TEXT_GRAMMAR_COMPILED_GRAMMAR_H_
#define NUNSPARK_TEXT_GRAMMAR_COMPILED_GRAMMAR_H_

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "nunspark/options.h"
#include "nunspark/status.h"
#include "text/grammar/automaton.h"
#include "text/grammar/grammar_part.h"
#include "text/grammar/grammar_vocabulary.h"
#include "text/grammar/matcher.h"

namespace nunspark::text {

class CompiledGrammar : public std::enable_shared_from_this<CompiledGrammar> {
 public:
  static constexpr int64_t kMostMatcherBytes = 4 << 20;  // between two outputs' tokens; twice that for a moment
  static constexpr int64_t kMostMaskBytes = 4 << 20;

  // Errors: as AddPart and Automaton::Compile; kUnsupported when the vocabulary has no tokens for what the grammar
  // asks.
  static Result<std::shared_ptr<CompiledGrammar>> Compile(std::shared_ptr<const GrammarVocabulary> vocabulary,
                                                          const GrammarPart& part);

  // One for each output. A token that was not allowed, or an output for which no token is left, ends it: from then on
  // only the end tokens are allowed.
  std::shared_ptr<TokenConstraint> NewConstraint();

  // Now, and when everything it may learn is there.
  int64_t memory_bytes() const;
  int64_t memory_bytes_max() const { return automaton_.memory_bytes() + 2 * kMostMatcherBytes + kMostMaskBytes; }

 private:
  class Constraint;
  // The tokens that a state allows, as a list where they are few.
  struct Mask {
    uint64_t key;
    std::vector<TokenId> few;
    std::vector<uint32_t> bits;
    int64_t bytes() const { return static_cast<int64_t>(sizeof(Mask) + 64 + (few.capacity() + bits.capacity()) * 4); }
  };

  CompiledGrammar(std::shared_ptr<const GrammarVocabulary> vocabulary, Automaton automaton);

  Status CheckVocabulary() const;
  // All REQUIRE the lock.
  const Mask& MaskOf(Matcher::State state, bool at_start);
  Mask ComputeMask(Matcher::State state, bool at_start);
  void Walk(const TokenTrie& trie, Matcher::State state, uint64_t work_end, std::vector<uint32_t>& bits);
  Matcher::State StepAll(Matcher::State state, std::string_view bytes, Spelled only);
  // Starts the matcher anew with the states that outputs are in, once it has grown too large.
  void Compact();

  const std::shared_ptr<const GrammarVocabulary> vocabulary_;
  const Automaton automaton_;
  mutable std::mutex mutex_;
  std::unique_ptr<Matcher> matcher_;
  std::vector<Constraint*> constraints_;  // alive
  std::list<Mask> masks_;                 // last used first
  std::unordered_map<uint64_t, std::list<Mask>::iterator> masks_by_key_;
  int64_t mask_bytes_ = 0;
  std::vector<Matcher::State> path_;  // of a walk
};

// Compiled grammars by what they were compiled from, the most recently used ones. Thread-safe.
class GrammarCache {
 public:
  // Keeps grammars of up to `most_bytes` together, by memory_bytes_max, and the last one in any case.
  GrammarCache(std::shared_ptr<const GrammarVocabulary> vocabulary, int64_t most_bytes)
      : vocabulary_(std::move(vocabulary)), most_bytes_(most_bytes) {}

  // Errors: as CompiledGrammar::Compile.
  Result<std::shared_ptr<CompiledGrammar>> Get(const GrammarPart& part);

 private:
  struct Entry {
    std::string key;
    std::shared_ptr<CompiledGrammar> grammar;
  };

  const std::shared_ptr<const GrammarVocabulary> vocabulary_;
  const int64_t most_bytes_;
  std::mutex mutex_;
  std::list<Entry> entries_;  // last used first
  std::unordered_map<std::string_view, std::list<Entry>::iterator> by_key_;
  int64_t bytes_ = 0;
};

}  // namespace nunspark::text

#endif  // NUNSPARK_TEXT_GRAMMAR_COMPILED_GRAMMAR_H_
