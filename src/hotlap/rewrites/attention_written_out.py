"""Attention written out as products and a softmax.

What it is
    The matrix of all scores is written to memory and read again by each operation; a fused kernel keeps it in cache.
Before
    scores = q @ k.transpose(-2, -1) / math.sqrt(d)
    weights = scores.softmax(dim=-1)
    out = weights @ v
After
    out = torch.nn.functional.scaled_dot_product_attention(q, k, v, scale=1 / math.sqrt(d))
When it is the same
    Up to rounding: sums are made in another order. A mask filled with -inf is handed over. With a dropout of the
    weights other ones are drawn: the same in distribution.
When it is not
    Where scores or weights are used again, or a row is masked as a whole; the first is not recognised.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass

from hotlap.ports.knob import Numerics
from hotlap.ports.rewrite import Edit, Function, Rewrite, Seen, Site
from hotlap.rewrites import local_name, starts_its_line, uses
from hotlap.source.values import full_name

_LAST = ("-1", "dim=-1")


class AttentionWrittenOut(Rewrite):
    id = "attention-written-out"
    numerics = Numerics.ROUNDING

    def recognise(self, function: Function, seen: Seen) -> Iterable[Site]:
        for body in _bodies(function):
            for first in range(len(body) - 2):
                found = _parts(function, body[first:], seen)
                own_lines = found is not None and all(
                    starts_its_line(function, each) for each in found.statements
                )
                if found is not None and own_lines:
                    last = found.statements[-1]
                    lines = (body[first].lineno, last.end_lineno or last.lineno)
                    yield Site(body[first], {}, Numerics.STATISTICAL if found.dropout else None, lines)

    def rewrite(self, function: Function, site: Site, seen: Seen) -> tuple[Edit, ...]:
        body = next(each for each in _bodies(function) if site.node in each)
        found = _parts(function, body[body.index(site.node) :], seen)  # type: ignore[arg-type]
        assert found is not None
        attention = f"{local_name(function, 'torch')}.nn.functional.scaled_dot_product_attention"
        words = [*found.given, *(f"attn_mask={each}" for each in (found.mask,) if each)]
        words += [f"dropout_p={each}" for each in (found.dropout,) if each]
        text = f"{found.target} = {attention}({', '.join(words)}, scale={found.scale})"
        start, end = function.span(found.statements[0])[0], function.span(found.statements[-1])[1]
        return (Edit(start, end, text),)


@dataclass(frozen=True)
class _Attention:
    """Query, key and value, and the rest, as they are written."""

    statements: list[ast.stmt]
    given: tuple[str, str, str]
    scale: str
    mask: str
    dropout: str
    target: str


def _bodies(function: Function) -> Iterable[list[ast.stmt]]:
    within = [each for each in function.walk() if not isinstance(each, ast.FunctionDef | ast.ClassDef)]
    for node in (function.node, *within):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            yield body


def _parts(function: Function, body: list[ast.stmt], seen: Seen) -> _Attention | None:
    """The scores, a mask or none, the softmax, a dropout or none, and the product with the values."""
    steps = [(each, each.targets[0].id, each.value) for each in body[:5] if _is_bound(each)]  # type: ignore[attr-defined]
    if len(steps) < 3:
        return None
    (_, name, scored), at, mask, dropout = steps[0], 1, "", ""
    masked = _masked(function, steps[at][2], name)
    if masked:
        mask, name, at = masked, steps[at][1], at + 1
    if at >= len(steps) or not _is_softmax(function, steps[at][2], name):
        return None
    name, at = steps[at][1], at + 1
    dropped = _dropped(steps[at][2], name, seen) if at < len(steps) else ""
    if dropped:
        dropout, name, at = dropped, steps[at][1], at + 1
    if at >= len(steps) or steps[at][0] is not body[at]:
        return None
    pair, scale = _scaled(function, scored)
    products = _product(function, pair) if pair is not None else None
    values = _product(function, steps[at][2])
    key = _transposed(products[1]) if products is not None else None
    if products is None or values is None or key is None or ast.unparse(values[0]) != name:
        return None
    inner, target = [each for _, each, _ in steps[:at]], steps[at][1]
    once = all(uses(function.node, each) == 2 * inner.count(each) for each in inner)
    tensors = all(seen.is_tensor(each) for each in (products[0], key, values[1]))
    apart = target not in inner and not any(uses(values[1], each) for each in inner)
    if not (once and tensors and apart and local_name(function, "torch")):
        return None
    given = (function.text(products[0]), function.text(key), function.text(values[1]))
    return _Attention([each for each, _, _ in steps[: at + 1]], given, scale, mask, dropout, target)


def _is_bound(node: ast.stmt) -> bool:
    return isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name)


def _masked(function: Function, node: ast.expr, scores: str) -> str:
    """What takes part, of `scores.masked_fill(mask == 0, float("-inf"))`."""
    match node:
        case ast.Call(
            func=ast.Attribute(attr="masked_fill", value=ast.Name(id=name)), args=[mask, filled], keywords=[]
        ):
            endless = ast.unparse(filled).replace("'", "").replace('"', "")
            known = endless in ("float(-inf)", "-math.inf", "-torch.inf", "-np.inf", "-float(inf)")
            if name != scores or not known:
                return ""
        case _:
            return ""
    match mask:
        case ast.Compare(left=left, ops=[ast.Eq()], comparators=[ast.Constant(value=0)]):
            return f"{function.primary(left)} != 0"
        case ast.UnaryOp(op=ast.Invert(), operand=taken):
            return function.text(taken)
    return f"~{function.primary(mask)}"


def _dropped(node: ast.expr, weights: str, seen: Seen) -> str:
    """The probability of a dropout module that is called on the weights."""
    match node:
        case ast.Call(func=ast.Name() | ast.Attribute() as module, args=[ast.Name(id=name)], keywords=[]) if (
            name == weights
        ):
            value, text = seen.value(module), ast.unparse(module)
            known = value is not None and value.type == "torch.nn.modules.dropout.Dropout"
            return f"{text}.p if {text}.training else 0.0" if known else ""
    return ""


def _scaled(function: Function, node: ast.expr) -> tuple[ast.expr | None, str]:
    match node:
        case ast.BinOp(op=ast.Mult(), left=left, right=right):
            return left, function.text(right)
        case ast.BinOp(op=ast.Div(), left=left, right=right):
            return left, f"1 / {function.primary(right)}"
        case _:
            return node, "1.0"


def _product(function: Function, node: ast.expr) -> tuple[ast.expr, ast.expr] | None:
    match node:
        case ast.BinOp(op=ast.MatMult(), left=left, right=right):
            return left, right
        case ast.Call(args=[left, right], keywords=[]):
            known = full_name(function.module, node.func) in ("torch.matmul", "torch.bmm")
            return (left, right) if known else None
    return None


def _transposed(node: ast.expr) -> ast.expr | None:
    match node:
        case ast.Call(func=ast.Attribute(attr="transpose", value=owner), args=[one, other], keywords=[]):
            return owner if {ast.unparse(one), ast.unparse(other)} == {"-2", "-1"} else None
        case ast.Attribute(attr="mT", value=owner):
            return owner
    return None


def _is_softmax(function: Function, node: ast.expr, scores: str) -> bool:
    match node:
        case ast.Call(func=ast.Attribute(attr="softmax", value=ast.Name(id=name))) if name == scores:
            rest = [*node.args, *node.keywords]
        case ast.Call(args=[ast.Name(id=name), *more]) if name == scores:
            known = ("torch.softmax", "torch.nn.functional.softmax")
            if full_name(function.module, node.func) not in known:
                return False
            rest = [*more, *node.keywords]
        case _:
            return False
    return len(rest) == 1 and ast.unparse(rest[0]) in _LAST
