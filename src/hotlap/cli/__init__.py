"""The command line: one file per command. A command parses and wires; it computes nothing."""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import NoReturn

import hotlap
from hotlap.errors import HotlapError, visible

_INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """`hotlap <command> ...`; the exit code is returned."""
    words = list(sys.argv[1:] if argv is None else argv)
    parser = build_parser()
    try:
        command, rest = _split_command(parser, words)
        options = parser.parse_args(command)
        options.command_words = rest
        options.own_process = argv is None
        if not hasattr(options, "run"):
            parser.print_help()
            return 0
        code = int(options.run(options))
        sys.stdout.flush()  # a reader that has gone is noticed here, and not at the interpreter's end
        return code
    except HotlapError as error:
        print(f"hotlap: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("hotlap: interrupted.", file=sys.stderr)
        return _INTERRUPTED
    except BrokenPipeError:
        sys.stderr.close()  # the reader of a pipe (head) has gone: nothing more to say
        return 0
    except OSError as fault:  # a full disk, a folder without rights: a job that had run has its own exit code
        named = f" ({fault.filename})" if fault.filename else ""
        text = HotlapError(
            f"a file could not be read or written: {fault.strerror or fault}{named}.",
            "see that the disk has room and the folder is yours",
        )
        print(f"hotlap: {text}", file=sys.stderr)
        return text.exit_code


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        super().error(visible(message))


def build_parser() -> argparse.ArgumentParser:
    """All commands with all options."""
    parser = _Parser(prog="hotlap", description=hotlap.__doc__, allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"hotlap {hotlap.__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    for module in command_modules():
        name = module.__name__.rpartition(".")[2]
        text = (module.__doc__ or "").partition("\n")[0]
        command = commands.add_parser(
            name,
            help=text,
            description=module.__doc__,
            allow_abbrev=False,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            usage=getattr(module, "USAGE", None),
        )
        module.add_arguments(command)
        command.set_defaults(run=module.run)
    return parser


def command_modules() -> list[ModuleType]:
    """The files of this folder; one that starts with an underscore is no command."""
    names = sorted(info.name for info in pkgutil.iter_modules(__path__) if not info.name.startswith("_"))
    return [importlib.import_module(f"{__name__}.{name}") for name in names]


def _split_command(parser: argparse.ArgumentParser, words: list[str]) -> tuple[list[str], list[str]]:
    """hotlap's own words, and the training command that follows them where the command takes one."""
    if not words or not getattr(_command_module(words[0]), "TAKES_COMMAND", False):
        return words, []
    takes_value = _options_with_value(parser, words[0])
    verbs = getattr(_command_module(words[0]), "VERBS", ())
    index = 2 if len(words) > 1 and words[1] in verbs else 1
    while index < len(words) and words[index].startswith("-") and words[index] not in ("-m", "--"):
        index += 2 if words[index] in takes_value else 1
    return words[:index], words[index:]


def _command_module(name: str) -> ModuleType | None:
    return next((each for each in command_modules() if each.__name__.endswith(f".{name}")), None)


def _options_with_value(parser: argparse.ArgumentParser, name: str) -> set[str]:
    commands = next(each for each in parser._actions if isinstance(each, argparse._SubParsersAction))
    actions = commands.choices[name]._option_string_actions
    return {option for option, action in actions.items() if action.nargs is None}
