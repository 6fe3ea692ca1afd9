#include "tests/adversary/frames.h"

#include <array>
#include <utility>

namespace troupe::adversary {
namespace {

constexpr std::uint32_t kStream = 1;  // in every message but Hello

std::uint32_t number_of(Ask ask) { return static_cast<std::uint32_t>(ask); }

// A Status.Ended.
std::pair<std::string, std::uint64_t> read_ended(std::string_view bytes) {
  std::pair<std::string, std::uint64_t> ended;
  Fields fields(bytes);
  while (const auto field = fields.next()) {
    if (field->number == 1) ended.first = field->bytes;
    if (field->number == 2) ended.second = field->value;
  }
  return ended;
}

// A Status.Kind.
void read_kind(std::string_view bytes, Figures& figures) {
  std::string kind;
  std::map<std::string, std::uint64_t> counts;
  Fields fields(bytes);
  while (const auto field = fields.next()) {
    if (field->number == 1) kind = field->bytes;
    if (field->number == 2) counts["received"] = field->value;
    if (field->number == 3) counts.insert(read_ended(field->bytes));
  }
  for (const auto& [what, count] : counts) figures.kinds[kind + " " + what] += count;
}

void read_tokens(const Field& field, Answer& answer) {
  if (field.number == 2) answer.choice = static_cast<std::uint32_t>(field.value);
  if (field.number == 4) answer.ids = unpack(field.bytes);
  if (field.number == 5) answer.text = field.bytes;
}

void read_end(const Field& field, Answer& answer) {
  const bool done = answer.reply == Reply::done, refused = answer.reply == Reply::refused;
  const std::uint32_t outcome = done ? 3 : 2, message = done ? 8 : 3;
  if (field.number == outcome) answer.outcome = static_cast<std::uint32_t>(field.value);
  if (field.number == message) answer.message = field.bytes;
  if (field.number == (done ? 2u : 6u) && !refused) answer.choice = static_cast<std::uint32_t>(field.value);
  if (refused && field.number == 4) answer.field = field.bytes;
  if (refused && field.number == 7) answer.closing = field.value != 0;
}

}  // namespace

std::string body_of(Ask ask, const Message& message) {
  Message body;
  body.message(number_of(ask), message);
  return body.bytes();
}

std::string frame_of(Ask ask, const Message& message) { return framed(body_of(ask, message)); }

std::string hello_frame(std::string_view client) {
  return frame_of(Ask::hello, Message().number(1, 1).text(2, client));
}

std::string plain_frame(Ask ask, std::uint64_t stream) { return frame_of(ask, Message().number(kStream, stream)); }

std::string status_frame(std::uint64_t stream, bool list_requests) {
  return frame_of(Ask::status, Message().number(kStream, stream).number(2, list_requests ? 1 : 0));
}

std::string tokenize_frame(std::uint64_t stream, std::string_view text) {
  return frame_of(Ask::tokenize, Message().number(kStream, stream).text(3, text));
}

std::string session_frame(std::uint64_t stream, AskSession ask, std::string_view name, std::string_view to) {
  Message question;
  if (!name.empty()) question.text(1, name);
  if (!to.empty()) question.text(2, to);
  return frame_of(Ask::session, Message().number(kStream, stream).message(static_cast<std::uint32_t>(ask), question));
}

std::string detokenize_frame(std::uint64_t stream, const std::vector<std::int32_t>& ids) {
  return frame_of(Ask::detokenize, Message().number(kStream, stream).packed(3, ids));
}

std::string credit_frame(std::uint64_t stream, std::uint64_t tokens, std::uint32_t choice) {
  return frame_of(Ask::credit, Message().number(kStream, stream).number(2, tokens).number(3, choice));
}

std::string embed_frame(std::uint64_t stream, const std::vector<std::string>& texts) {
  Message embed;
  embed.number(kStream, stream);
  for (const std::string& text : texts) embed.text(3, text);
  return frame_of(Ask::embed, embed);
}

Message generate_message(const Asked& asked) {
  Message sampling;
  sampling.real(1, asked.temperature).number(9, asked.seed).number(10, asked.max_tokens);
  sampling.number(11, asked.ignore_eos ? 1 : 0);
  for (std::uint32_t id = 0; id < asked.num_biased; ++id) sampling.message(12, Message().number(1, id).real(2, -0.5f));
  if (!asked.stop_ids.empty()) sampling.packed(13, asked.stop_ids);
  Message generate;
  generate.number(kStream, asked.stream);
  if (!asked.model.empty()) generate.text(2, asked.model);
  generate.text(3, asked.text);
  if (asked.n) generate.number(6, *asked.n);
  generate.message(7, sampling);
  for (const std::string& stop : asked.stop) generate.text(8, stop);
  if (asked.deadline_ms) generate.number(9, *asked.deadline_ms);
  if (asked.priority != 0) generate.signed_number(10, asked.priority);
  if (asked.credit) generate.number(11, *asked.credit);
  if (!asked.adapter.empty()) generate.text(16, asked.adapter);
  if (!asked.session.empty()) generate.text(21, asked.session);
  return generate;
}

std::string generate_frame(const Asked& asked) { return frame_of(Ask::generate, generate_message(asked)); }

constexpr auto kLastReply = static_cast<std::uint32_t>(Reply::sessions);

std::optional<Answer> read_answer(std::string_view body) {
  Fields frame(body);
  const auto outer = frame.next();
  if (!outer || !outer->has_bytes || outer->number < 1 || outer->number > kLastReply) return std::nullopt;
  Answer answer;
  answer.reply = static_cast<Reply>(outer->number);
  if (answer.reply == Reply::status) answer.body = outer->bytes;
  Fields fields(outer->bytes);
  while (const auto field = fields.next()) {
    const bool has_stream = answer.reply != Reply::welcome && answer.reply != Reply::draining;
    if (has_stream && field->number == kStream) answer.stream = field->value;
    if (answer.reply == Reply::tokens) read_tokens(*field, answer);
    if (answer.reply == Reply::done || answer.reply == Reply::refused || answer.reply == Reply::failed)
      read_end(*field, answer);
    if (answer.reply == Reply::tokenized && field->number == 2) answer.ids = unpack(field->bytes);
    if (answer.reply == Reply::detokenized && field->number == 2) answer.text = field->bytes;
  }
  if (fields.damaged() || frame.next() || frame.damaged()) return std::nullopt;
  return answer;
}

std::string outcome_name(std::uint32_t outcome) {
  static const std::map<std::uint32_t, std::string> kNames{{1, "eos"},
                                                           {2, "stop_id"},
                                                           {3, "stop_string"},
                                                           {4, "length"},
                                                           {5, "cancelled"},
                                                           {6, "deadline"},
                                                           {100, "invalid_argument"},
                                                           {101, "too_long"},
                                                           {102, "never_fits"},
                                                           {103, "unknown_model"},
                                                           {104, "loading"},
                                                           {105, "draining"},
                                                           {106, "queue_full"},
                                                           {107, "quota"},
                                                           {108, "deadline_unmeetable"},
                                                           {109, "permission"},
                                                           {110, "unsupported"},
                                                           {200, "worker_lost"},
                                                           {201, "quarantined"},
                                                           {202, "preempted_too_often"},
                                                           {203, "model_unloaded"},
                                                           {204, "out_of_memory"},
                                                           {205, "internal"}};
  const auto found = kNames.find(outcome);
  return found == kNames.end() ? "outcome " + std::to_string(outcome) : found->second;
}

std::string to_string(const Answer& answer) {
  static constexpr std::array kNames{"nothing",    "Welcome",     "Tokens", "Done",    "Refused", "Failed",
                                     "Tokenized",  "Detokenized", "Models", "Status",  "Health",  "Draining",
                                     "Embeddings", "number 13",   "Usage",  "Sessions"};
  static_assert(kNames.size() == kLastReply + 1);
  std::string line = kNames[static_cast<std::size_t>(answer.reply)];
  if (answer.outcome != 0) line += "{" + outcome_name(answer.outcome) + "}";
  if (!answer.field.empty()) line += " " + answer.field;
  if (!answer.message.empty()) line += ": " + answer.message;
  return line;
}

std::uint64_t Figures::all_ended() const {
  std::uint64_t sum = 0;
  for (const auto& [name, count] : ended) sum += count;
  return sum;
}

Figures read_figures(std::string_view status) {
  Figures figures;
  const std::map<std::uint32_t, std::uint64_t*> places{
      {7, &figures.received},  {9, &figures.waiting},        {10, &figures.running}, {11, &figures.parked},
      {27, &figures.kv_bytes}, {29, &figures.connections},   {30, &figures.streams}, {32, &figures.refused_connections},
      {33, &figures.broken},   {43, &figures.resident_bytes}};
  Fields fields(status);
  while (const auto field = fields.next()) {
    if (field->number == 8) figures.ended.insert(read_ended(field->bytes));
    if (field->number == 56) read_kind(field->bytes, figures);
    if (const auto place = places.find(field->number); place != places.end()) *place->second = field->value;
  }
  return figures;
}

}  // namespace troupe::adversary
