// troupe chat: a conversation with the server's model, line by line.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <iostream>
#include <optional>
#include <string>
#include <thread>

#include "cli/client/answers.h"
#include "cli/client/chat_commands.h"
#include "cli/client/chat_history.h"
#include "cli/client/chat_style.h"
#include "cli/client/client_options.h"
#include "cli/client/first_words.h"
#include "cli/client/line_editor.h"
#include "cli/subcommands.h"
#include "cli/terminal/exit_code.h"
#include "cli/terminal/output.h"
#include "cli/terminal/signals.h"
#include "cli/terminal/status_line.h"
#include "config/options/values.h"
#include "config/printable.h"
#include "config/utf8.h"
#include "ipc/client/client.h"
#include "scheduler/outcome.h"

namespace troupe::cli {
namespace {

constexpr std::string_view kName = "troupe chat";
constexpr std::chrono::milliseconds kLoadingPause{200};  // between two questions whether the model is loaded

// The model that is asked. Waits while the server loads it.
Result<client::ModelDescription> find_model(client::Client& client, const std::string& name) {
  if (client.server().health.readiness == client::Readiness::loading)
    complain(kName, "the server is loading its model; waiting");
  while (true) {
    const auto models = client.models();
    if (!models) return models.error();
    for (const client::ModelDescription& each : *models)
      if (name.empty() || each.name == name) return each;
    // An unknown name: the server refuses it by name.
    if (!models->empty()) return client::ModelDescription{.name = name, .chat_template = "unknown"};
    const auto health = client.health();
    if (!health) return health.error();
    if (health->readiness == client::Readiness::failed)
      return Error{ErrorCode::io, "the server could not load its model; its log says why"};
    std::this_thread::sleep_for(kLoadingPause);
  }
}

class Chat {
 public:
  // is_answering: whether a signal stops an answer.
  Chat(const config::ChatOptions& options, const config::Given& given, client::Client& client, EventQueue& events,
       std::atomic<bool>& is_answering, client::ModelDescription model)
      : options_(options),
        client_(client),
        events_(events),
        is_answering_(is_answering),
        model_(std::move(model)),
        has_template_(!model_.chat_template.empty()) {
    settings_.sampling = given_sampling(options, given);
    settings_.presets = sampling_of(options);
    config::for_each_sampling_number(
        [](const config::SamplingNumber&, auto& preset, const auto& of_model) {
          if (of_model) preset = of_model;
        },
        settings_.presets, model_.defaults);
    // Left out, it is as the server has it.
    if (given.origins.contains("predict")) settings_.sampling.max_tokens = config::answer_length(options.predict);
    if (options.reasoning_budget >= 0)
      settings_.reasoning_budget = static_cast<std::uint32_t>(options.reasoning_budget);
    history_.system = options.system;
  }

  // The functions that the model may call. Error: there is no template that could tell of them, or the file has none.
  Status offer_tools(const std::string& path) {
    auto tools = read_tools(path);
    if (!tools) return tools.error();
    if (!has_template_)
      return Error{ErrorCode::unsupported,
                   "--tools: this model has no chat template, so it cannot be told of tools (`troupe serve "
                   "--chat-template` gives it one)"};
    tools_ = *std::move(tools);
    return Ok{};
  }

  // Continues the conversation of this name, if there is one, and keeps it from then on: its messages in their file,
  // its tokens as a session of the server, if that keeps sessions.
  Status keep_as(const std::string& name) {
    auto path = session_file(name);
    if (!path) return path.error();
    const auto session = server_session(name);
    if (!session) return session.error();
    const std::uint64_t num_tokens = *session ? (*session)->tokens : 0;
    std::error_code ignored;
    bool is_changed = false;
    if (std::filesystem::exists(*path, ignored)) {
      auto loaded = load_history(*path);
      if (!loaded) return loaded.error();
      history_ = *std::move(loaded);
      is_changed = !options_.system.empty() && options_.system != history_.system;
      if (is_changed) history_.system = options_.system;
    } else if (num_tokens > 0 && !history_.turns.empty()) {
      return Error{
          ErrorCode::invalid_argument,
          fmt::format("the server has another session {0}; choose another name, or `troupe session delete {0}`", name)};
    }
    session_ = name;
    file_ = *std::move(path);
    is_on_server_ = session->has_value();
    is_changed_ = is_changed;
    if (num_tokens > 0 && history_.turns.empty())
      tell(fmt::format("the server's session {} has {} tokens, and goes on\n", name, num_tokens));
    return Ok{};
  }

  // Until the end of the input, /quit, or a lost connection. The exit code is that of the last answer.
  Result<int> talk() {
    greet();
    while (!quits_) {
      const auto line = editor_.read(prompt(lines_.is_open() ? "..." : ">"));
      if (!line) break;
      if (editor_.was_interrupted()) {
        lines_.clear();
        continue;
      }
      if (const Status done = take(*line); !done) return done.error();
    }
    if (const auto rest = lines_.end()) {
      if (const Status done = say(*rest); !done) return done.error();
    }
    if (editor_.is_terminal()) std::cerr << "\n";
    return code_;
  }

 private:
  // The server's session of this name, without tokens if there is none. Nothing: the whole conversation is sent each
  // time, because the server keeps no sessions, or there are no messages.
  Result<std::optional<client::SessionInfo>> server_session(const std::string& name) const {
    std::optional<client::SessionInfo> none;
    if (!has_template_) return none;
    const auto sessions = client_.sessions();
    if (!sessions && sessions.error().code == ErrorCode::unsupported) return none;
    if (!sessions) return sessions.error();
    const auto found = std::ranges::find(*sessions, name, &client::SessionInfo::name);
    return std::optional(found == sessions->end() ? client::SessionInfo{} : *found);
  }

  // Before each question: the session may have gone, or gone on, since the last one.
  Status prepare_session() {
    continues_session_ = false;
    if (!is_on_server_) return Ok{};
    const auto session = server_session(session_);
    if (!session) return session.error();
    if (!*session || (*session)->tokens == 0) return Ok{};
    if (is_changed_) return client_.delete_session(session_);  // and begun anew, with all messages
    continues_session_ = true;
    recomputes_session_ = (*session)->numerics_id != model_.numerics_id;
    if ((*session)->tokens != history_.session_tokens && history_.session_tokens > 0)
      tell(fmt::format("the server's session {} has gone on elsewhere, to {} tokens\n", session_, (*session)->tokens));
    return Ok{};
  }

  // For people only: what is piped gets the answers alone.
  void tell(std::string_view text) const {
    if (editor_.is_terminal()) note(text);
  }
  // Whole lines.
  void note(std::string_view text) const { std::cerr << style_.note << text << style_.end << std::flush; }

  std::string prompt(std::string_view label) const {
    if (style_.is_plain()) return fmt::format("{} ", label);
    constexpr char kMark = LineEditor::kTakesNoRoom;
    return fmt::format("{0}{1}{0}{2}{0}{3}{0} ", kMark, style_.prompt, label, style_.end);
  }

  void greet() const {
    if (!has_template_)
      complain(kName,
               "this model has no chat template: it continues the text (`troupe serve --chat-template` gives it one)");
    tell("/help lists commands; Ctrl-C stops an answer, Ctrl-D ends\n");
    if (!history_.turns.empty()) tell(fmt::format("{} turns so far\n", history_.turns.size()));
  }

  Status take(std::string_view line) {
    if (!lines_.is_open()) {
      // A paste may begin with a slash.
      const auto command = line.find('\n') == std::string_view::npos ? parse_command(line)
                                                                     : Result<std::optional<CommandLine>>(std::nullopt);
      if (!command) return report(command.error());
      if (*command) return obey(**command);
      if (line.starts_with("//")) line.remove_prefix(1);
      if (line.empty()) return Ok{};
    }
    const auto message = lines_.add(line);
    return message ? say(*message) : Status(Ok{});
  }

  // A mistake in a line: said, and the chat goes on.
  Status report(const Error& error) {
    for (std::string_view rest = error.message; !rest.empty();) {
      const std::string_view line = rest.substr(0, rest.find('\n'));
      complain(kName, line);
      rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    }
    if (!editor_.is_terminal()) code_ = client_exit_code(error.code);
    return Ok{};
  }

  Status obey(const CommandLine& line) {
    switch (line.command) {
      case ChatCommand::quit:
        quits_ = true;
        return Ok{};
      case ChatCommand::help:
        note(chat_help());
        return Ok{};
      case ChatCommand::stats:
        note(stats_);
        return Ok{};
      case ChatCommand::clear:
        history_.turns.clear();
        return change();
      case ChatCommand::system:
        history_.system = line.argument;
        return change();
      case ChatCommand::regenerate:
        if (!history_.drop_answer() && (history_.turns.empty() || history_.turns.back().role == "assistant"))
          return report({ErrorCode::invalid_argument, "there is no answer yet"});
        is_changed_ = true;
        return answer_and_calls();
      case ChatCommand::undo:
        if (!history_.drop_turn()) return report({ErrorCode::invalid_argument, "nothing has been said yet"});
        tell_turns();
        return change();
      case ChatCommand::session:
        return use_session(line.argument);
      case ChatCommand::set: {
        const auto shown = set_setting(settings_, line.argument);
        if (!shown) return report(shown.error());
        note(*shown);
        return Ok{};
      }
      case ChatCommand::save:
      case ChatCommand::load:
        return use_file(line);
    }
    return Ok{};
  }

  Status use_session(const std::string& name) {
    if (!name.empty()) {
      if (const Status kept = keep_as(name); !kept) return report(kept.error());
      if (const Status kept = keep(); !kept) return kept;
    }
    note(session_.empty() ? "  this conversation has no name; /session NAME gives it one\n"
                          : fmt::format("  {}: {} turns in {}\n", session_, history_.turns.size(), file_));
    return Ok{};
  }

  Status use_file(const CommandLine& line) {
    if (line.argument.empty()) return report({ErrorCode::invalid_argument, "name a file"});
    if (line.command == ChatCommand::save) {
      const Status saved = save_history(history_, line.argument);
      return saved ? saved : report(saved.error());
    }
    auto loaded = load_history(line.argument);
    if (!loaded) return report(loaded.error());
    history_ = *std::move(loaded);
    tell_turns();
    return change();
  }

  void tell_turns() const { tell(fmt::format("{} turns\n", history_.turns.size())); }

  // After the conversation became another one than the server's session has.
  Status change() {
    is_changed_ = true;
    return keep();
  }

  // Into the file of --session.
  Status keep() {
    if (file_.empty()) return Ok{};
    const Status saved = save_history(history_, file_);
    return saved ? saved : report(saved.error());
  }

  Status say(const std::string& text) {
    if (!is_utf8(text)) return report({ErrorCode::invalid_argument, "this text is not UTF-8"});
    history_.turns.push_back({.role = "user", .content = text});
    return answer_and_calls();
  }

  // The answer, and as long as it calls tools their results and the next one.
  Status answer_and_calls() {
    while (true) {
      if (const Status done = answer(); !done) return done;
      if (history_.turns.empty() || history_.turns.back().tool_calls.empty()) return Ok{};
      const std::vector<client::ToolCall> calls = history_.turns.back().tool_calls;
      for (const client::ToolCall& call : calls) {
        auto result = ask_result(call);
        if (result) {
          history_.turns.push_back(*std::move(result));
          continue;
        }
        // Without all results the conversation cannot go on behind its calls.
        history_.drop_turn();
        tell("(taken back, with what was asked)\n");
        return change();
      }
    }
  }

  // Nothing: the input has ended, or Ctrl-C.
  std::optional<client::Message> ask_result(const client::ToolCall& call) {
    constexpr std::string_view kFailed = "/error";
    MessageLines lines;
    tell(fmt::format("the result of {}; /error TEXT: it failed\n", Printable(call.name).text()));
    std::optional<std::string> said;
    bool is_error = false;
    while (!said) {
      const auto line = editor_.read(prompt(lines.is_open() ? "..." : "=>"));
      if (!line || editor_.was_interrupted()) return std::nullopt;
      std::string_view text = *line;
      if (!lines.is_open() && text.starts_with(kFailed) &&
          (text.size() == kFailed.size() || text[kFailed.size()] == ' ')) {
        is_error = true;
        text.remove_prefix(std::min(kFailed.size() + 1, text.size()));
      }
      said = lines.add(text);
      if (said && !is_utf8(*said)) {
        complain(kName, "this text is not UTF-8");
        said.reset();
      }
    }
    return client::Message{.role = "tool", .content = *std::move(said), .tool_call_id = call.id, .is_error = is_error};
  }

  client::Request request() const {
    client::Request request;
    request.model = options_.model_name;
    request.cache_scope = options_.scope;
    request.sampling = settings_.sampling;
    request.presets = settings_.presets;
    request.reasoning_budget = settings_.reasoning_budget;
    request.tools = tools_;
    if (is_on_server_) {
      request.session = session_;
      // Computed with other kernels, it goes on from its tokens.
      request.session_recompute = continues_session_ && recomputes_session_;
    }
    if (!has_template_)
      request.prompt = history_.story();
    else if (continues_session_)
      request.prompt = history_.next_turn(options_.chat_template_kwargs);
    else
      request.prompt = history_.conversation(options_.chat_template_kwargs);
    return request;
  }

  // Asks for an answer, shows it as it comes, and keeps it. Error: the connection is lost.
  Status answer() {
    if (const Status ready = prepare_session(); !ready) {
      take_back();
      return report(ready.error());
    }
    std::string text;
    std::vector<client::ToolCall> calls;
    TerminalText shown;
    const bool escapes = shows_controls(options_.raw);
    // With variables of the template the prompt may end otherwise than the server says of it.
    ReasoningShade shade(escapes ? chat_style(STDOUT_FILENO) : ChatStyle{}, model_.reasoning_open,
                         model_.reasoning_close,
                         has_template_ && model_.begins_reasoning && options_.chat_template_kwargs.empty());
    std::optional<Result<client::Ended>> ended;
    client::Callbacks callbacks;
    if (::isatty(STDERR_FILENO) != 0)
      callbacks.on_waiting = [](const client::Waiting& waiting) { StatusLine::of_stderr().draw(waiting.text); };
    callbacks.on_tokens = [&](const client::Tokens& tokens) {
      StatusLine::of_stderr().erase();
      text += tokens.text;
      for (const client::CallPart& part : tokens.calls) client::add_call_part(calls, part);
      std::cout << shade.show(escapes ? shown.show(tokens.text) : tokens.text) << std::flush;
    };
    callbacks.on_end = [&](const Result<client::Ended>& end) {
      StatusLine::of_stderr().erase();
      ended = end;
      events_.post(Event::ended);
    };
    is_answering_ = true;
    const auto stream = client_.generate(request(), std::move(callbacks));
    if (!stream) {
      is_answering_ = false;
      take_back();
      return report(stream.error());
    }
    while (*events_.wait() != Event::ended) stream->cancel();
    is_answering_ = false;
    std::cout << shade.show(escapes ? shown.end() : "") << shade.end() << (text.empty() && !calls.empty() ? "" : "\n");
    for (const client::ToolCall& call : calls) std::cout << call_line(call) << "\n";
    std::cout << std::flush;
    if (!*ended) return ended->error();
    return conclude(**ended, std::move(text), std::move(calls));
  }

  Status conclude(const client::Ended& ended, std::string text, std::vector<client::ToolCall> calls) {
    const scheduler::OutcomeInfo& outcome = scheduler::info(ended.outcome);
    stats_ =
        fmt::format("  {} prompt tokens, {} of them cached; {} tokens, first after {:.0f} ms, {:.1f} a second; {}\n",
                    ended.usage.prompt_tokens, ended.usage.cached_tokens, ended.usage.completion_tokens,
                    ended.usage.ttft_seconds * 1e3, per_second(ended.usage), outcome.name);
    if (outcome.kind != scheduler::OutcomeKind::done) {
      take_back();
      complain(kName, fmt::format("{}: {}", outcome.name, with_flags(ended.message)));
      code_ = outcome.exit_code;
      return Ok{};
    }
    if (ended.outcome == scheduler::Outcome::cancelled) tell("(stopped)\n");
    code_ = kExitOk;
    if (ended.usage.completion_tokens == 0 && ended.outcome == scheduler::Outcome::cancelled) {
      take_back();  // as the session does
      return keep();
    }
    // A turn that could not be written is not in the session: then it is begun anew.
    is_changed_ = is_on_server_ && ended.outcome != scheduler::Outcome::cancelled && !ended.message.empty();
    if (is_changed_) complain(kName, ended.message);
    // The answer was stopped, or too long: what it calls is not asked for.
    if (!calls.empty() && (!calls.back().is_complete || ended.outcome == scheduler::Outcome::cancelled)) {
      complain(kName, fmt::format("the answer was cut in its calls ({}), so they are left out", outcome.name));
      calls.clear();
      is_changed_ = is_on_server_;
    }
    history_.session_tokens =
        is_on_server_ ? std::uint64_t{ended.usage.prompt_tokens} + ended.usage.completion_tokens : 0;
    history_.turns.push_back({.role = "assistant", .content = std::move(text), .tool_calls = std::move(calls)});
    return keep();
  }

  // What was not answered does not stay in the conversation.
  void take_back() {
    if (history_.turns.empty() || history_.turns.back().role == "assistant") return;
    // With the results of calls the answer that has them goes, too, which the server's session has.
    is_changed_ |= is_on_server_ && history_.turns.back().role == "tool";
    history_.drop_turn();
  }

  static double per_second(const client::Usage& usage) {
    return usage.decode_seconds > 0 && usage.completion_tokens > 1
               ? (usage.completion_tokens - 1.0) / usage.decode_seconds
               : 0.0;
  }

  const config::ChatOptions& options_;
  client::Client& client_;
  EventQueue& events_;
  std::atomic<bool>& is_answering_;
  const client::ModelDescription model_;
  const bool has_template_;
  const ChatStyle style_ = chat_style(STDERR_FILENO);
  LineEditor editor_;
  MessageLines lines_;
  ChatHistory history_;
  std::vector<client::Tool> tools_;
  ChatSettings settings_;
  std::string session_, file_;      // empty: the conversation is not kept
  bool is_on_server_ = false;       // as a session, too
  bool is_changed_ = false;         // it is not what the session has
  bool continues_session_ = false;  // the next question is sent alone
  bool recomputes_session_ = false;
  std::string stats_ = "  there is no answer yet\n";
  int code_ = kExitOk;
  bool quits_ = false;
};

}  // namespace

Result<int> chat(const config::ChatOptions& options, const config::Given& given) {
  if (!options.session.empty()) {
    if (const auto path = session_file(options.session); !path) return path.error();  // before anything is asked
  }
  EventQueue events;
  std::atomic<bool> is_answering = false, has_begun = false;
  const bool is_terminal = ::isatty(STDIN_FILENO) != 0;
  const SignalThread signals({SIGINT}, [&](int number) {
    if (is_answering) return events.post_signal(number);
    // At a terminal a line is edited, where Ctrl-C is a key; a read of a pipe cannot be interrupted otherwise.
    if (!is_terminal || !has_begun) ::_exit(kExitSignalBase + number);
  });
  const auto client = connect(options, std::string(kName));
  if (!client) return client.error();
  auto model = find_model(**client, options.model_name);
  if (!model) return model.error();
  Chat chat(options, given, **client, events, is_answering, *std::move(model));
  if (!options.tools.empty()) {
    if (const Status offered = chat.offer_tools(options.tools); !offered) return offered.error();
  }
  if (!options.session.empty()) {
    if (const Status kept = chat.keep_as(options.session); !kept) return kept.error();
  }
  has_begun = true;
  return chat.talk();
}

}  // namespace troupe::cli
