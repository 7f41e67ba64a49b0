// Answers in the forms of the APIs: OpenAI's chats and completions, Anthropic's messages; whole, and as events.
#ifndef NUNSPARK_SERVER_ANSWERS_H_
#define NUNSPARK_SERVER_ANSWERS_H_

#include <memory>
#include <string>

#include "server/generation.h"
#include "server/http.h"
#include "server/request.h"

namespace nunspark::server {

struct AnswerContext {
  std::shared_ptr<Exchange> exchange;
  std::string model;  // as it is served
  const ModelFiles& files;
};

std::unique_ptr<AnswerSink> ChatAnswer(AnswerContext context, const TextRequest& request);
std::unique_ptr<AnswerSink> CompletionAnswer(AnswerContext context, const TextRequest& request);
// `prompt_tokens`: told at the beginning of a stream.
std::unique_ptr<AnswerSink> MessagesAnswer(AnswerContext context, const TextRequest& request, int64_t prompt_tokens);

// The HTTP status of an error.
int HttpStatusOf(const Status& status);
// {"error": {"message", "type", "param": null, "code"}}
HttpResponse OpenAiError(int status, const std::string& message, const std::string& code = {});
// {"type": "error", "error": {"type", "message"}}
HttpResponse AnthropicError(int status, const std::string& message);

// 32 (or `digits`) hexadecimal digits that no other request has.
std::string NewId(int digits);

int64_t UnixTime();

}  // namespace nunspark::server

#endif  // NUNSPARK_SERVER_ANSWERS_H_
