// troupe chat: a conversation with the server's model, line by line.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <iostream>
#include <optional>
#include <thread>

#include "cli/client/chat_commands.h"
#include "cli/client/chat_history.h"
#include "cli/client/client_options.h"
#include "cli/client/line_editor.h"
#include "cli/subcommands.h"
#include "cli/terminal/exit_code.h"
#include "cli/terminal/output.h"
#include "cli/terminal/signals.h"
#include "config/options/values.h"
#include "config/printable.h"
#include "config/utf8.h"
#include "ipc/client/client.h"
#include "scheduler/outcome.h"

namespace troupe::cli {
namespace {

constexpr std::string_view kName = "troupe chat";
constexpr std::chrono::milliseconds kLoadingPause{200};  // between two questions whether the model is loaded

// Whether the model has a chat template; without one its text is continued. Waits while the server loads the model.
Result<bool> has_template(client::Client& client, const std::string& name) {
  if (client.server().health.readiness == client::Readiness::loading)
    complain(kName, "the server is loading its model; waiting");
  while (true) {
    const auto models = client.models();
    if (!models) return models.error();
    for (const client::ModelDescription& each : *models)
      if (name.empty() || each.name == name) return !each.chat_template.empty();
    if (!models->empty()) return true;  // an unknown name: the server refuses it by name
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
  Chat(const config::ChatOptions& options, client::Client& client, EventQueue& events, std::atomic<bool>& is_answering,
       bool has_template)
      : options_(options), client_(client), events_(events), is_answering_(is_answering), has_template_(has_template) {
    settings_.sampling = sampling_of(options);
    if (options.predict >= 0) settings_.sampling.max_tokens = static_cast<std::uint32_t>(options.predict);
    if (options.reasoning_budget >= 0)
      settings_.reasoning_budget = static_cast<std::uint32_t>(options.reasoning_budget);
    history_.system = options.system;
  }

  // Continues the conversation of this name, if there is one, and keeps it in its file from then on.
  Status keep_as(const std::string& name) {
    auto path = session_file(name);
    if (!path) return path.error();
    std::error_code ignored;
    if (std::filesystem::exists(*path, ignored)) {
      auto loaded = load_history(*path);
      if (!loaded) return loaded.error();
      history_ = *std::move(loaded);
      if (!options_.system.empty()) history_.system = options_.system;
    }
    session_ = name;
    file_ = *std::move(path);
    return Ok{};
  }

  // Until the end of the input, /quit, or a lost connection. The exit code is that of the last answer.
  Result<int> talk() {
    greet();
    while (!quits_) {
      const auto line = editor_.read(lines_.is_open() ? "... " : "> ");
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
  // For people only: what is piped gets the answers alone.
  void tell(const std::string& text) const {
    if (editor_.is_terminal()) std::cerr << text;
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
        std::cerr << chat_help();
        return Ok{};
      case ChatCommand::stats:
        std::cerr << stats_;
        return Ok{};
      case ChatCommand::clear:
        history_.turns.clear();
        return keep();
      case ChatCommand::system:
        history_.system = line.argument;
        return keep();
      case ChatCommand::regenerate:
        if (!history_.drop_answer() && (history_.turns.empty() || history_.turns.back().role != "user"))
          return report({ErrorCode::invalid_argument, "there is no answer yet"});
        return answer();
      case ChatCommand::undo:
        if (!history_.drop_turn()) return report({ErrorCode::invalid_argument, "nothing has been said yet"});
        tell_turns();
        return keep();
      case ChatCommand::session:
        return use_session(line.argument);
      case ChatCommand::set: {
        const auto shown = set_setting(settings_, line.argument);
        if (!shown) return report(shown.error());
        std::cerr << *shown;
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
    std::cerr << (session_.empty() ? "  this conversation has no name; /session NAME gives it one\n"
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
    return keep();
  }

  void tell_turns() const { tell(fmt::format("{} turns\n", history_.turns.size())); }

  // Into the file of --session.
  Status keep() {
    if (file_.empty()) return Ok{};
    const Status saved = save_history(history_, file_);
    return saved ? saved : report(saved.error());
  }

  Status say(const std::string& text) {
    if (!is_utf8(text)) return report({ErrorCode::invalid_argument, "this text is not UTF-8"});
    history_.turns.push_back({.role = "user", .content = text});
    return answer();
  }

  client::Request request() const {
    client::Request request;
    request.model = options_.model_name;
    request.cache_scope = options_.scope;
    request.sampling = settings_.sampling;
    request.reasoning_budget = settings_.reasoning_budget;
    if (has_template_)
      request.prompt = history_.conversation(options_.chat_template_kwargs);
    else
      request.prompt = history_.story();
    return request;
  }

  // Asks for an answer, shows it as it comes, and keeps it. Error: the connection is lost.
  Status answer() {
    std::string text;
    TerminalText shown;
    const bool escapes = shows_controls(options_.raw);
    std::optional<Result<client::Ended>> ended;
    client::Callbacks callbacks;
    callbacks.on_tokens = [&](const client::Tokens& tokens) {
      text += tokens.text;
      std::cout << (escapes ? shown.show(tokens.text) : tokens.text) << std::flush;
    };
    callbacks.on_end = [&](const Result<client::Ended>& end) {
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
    std::cout << (escapes ? shown.end() : "") << "\n" << std::flush;
    if (!*ended) return ended->error();
    return conclude(**ended, std::move(text));
  }

  Status conclude(const client::Ended& ended, std::string text) {
    const scheduler::OutcomeInfo& outcome = scheduler::info(ended.outcome);
    stats_ =
        fmt::format("  {} prompt tokens, {} of them cached; {} tokens, first after {:.0f} ms, {:.1f} a second; {}\n",
                    ended.usage.prompt_tokens, ended.usage.cached_tokens, ended.usage.completion_tokens,
                    ended.usage.ttft_seconds * 1e3, per_second(ended.usage), outcome.name);
    if (outcome.kind != scheduler::OutcomeKind::done) {
      take_back();
      complain(kName, fmt::format("{}: {}", outcome.name, ended.message));
      code_ = outcome.exit_code;
      return Ok{};
    }
    if (ended.outcome == scheduler::Outcome::cancelled) tell("(stopped)\n");
    code_ = kExitOk;
    history_.turns.push_back({.role = "assistant", .content = std::move(text)});
    return keep();
  }

  // What was not answered does not stay in the conversation.
  void take_back() {
    if (!history_.turns.empty() && history_.turns.back().role == "user") history_.turns.pop_back();
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
  const bool has_template_;
  LineEditor editor_;
  MessageLines lines_;
  ChatHistory history_;
  ChatSettings settings_;
  std::string session_, file_;  // empty: the conversation is not kept
  std::string stats_ = "  there is no answer yet\n";
  int code_ = kExitOk;
  bool quits_ = false;
};

}  // namespace

Result<int> chat(const config::ChatOptions& options, const config::Given&) {
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
  const auto with_template = has_template(**client, options.model_name);
  if (!with_template) return with_template.error();
  Chat chat(options, **client, events, is_answering, *with_template);
  if (!options.session.empty()) {
    if (const Status kept = chat.keep_as(options.session); !kept) return kept.error();
  }
  has_begun = true;
  return chat.talk();
}

}  // namespace troupe::cli
