"""The parts of a picture of a tape: operations and leaves, in boxes for module calls, which may be folded."""

from collections.abc import Iterator, Sequence

from minigrad.viz.layout import Point

PAD = 10.0  # padding inside a box


class Node:
    """One drawn operation or leaf, or a folded box."""

    def __init__(self, kind: str, name: str, below: str, tip: str) -> None:
        self.kind, self.name, self.below, self.tip = kind, name, below, tip
        self.count = int(kind.startswith("op"))
        self.parent: Box | None = None
        self.corner: Point = (0.0, 0.0)

    @property
    def size(self) -> tuple[float, float]:
        """Width and height, from the number of letters."""
        return max(7.4 * len(self.name), 6.4 * len(self.below)) + 20, 38.0 if self.below else 24.0


class Box:
    """The operations of one call of a module, in the order of recording."""

    def __init__(self, label: str, path: str | None) -> None:
        self.label, self.path = label, path  # the path of the module within the outermost one, if known
        self.parent: Box | None = None
        self.children: list[Node | Box] = []
        self.corner: Point = (0.0, 0.0)
        self.size = (0.0, 0.0)
        self.label_at = PAD
        self.ports: dict[tuple[str, int], float] = {}  # (in or out, key of a line) -> its distance from the left

    def add(self, child: "Node | Box", first: bool = False) -> None:
        """Add a child at the end, or at the beginning."""
        child.parent = self
        self.children.insert(0 if first else len(self.children), child)

    def nodes(self) -> Iterator[Node]:
        """Return all nodes inside, at any depth."""
        return _nodes(self.children)

    def boxes(self) -> "Iterator[Box]":
        """Return all boxes inside, at any depth, the outer ones first."""
        for child in self.children:
            if isinstance(child, Box):
                yield child
                yield from child.boxes()


def enclosing(child: Node | Box) -> list[Box]:
    """Return the boxes around a node or box, the innermost first."""
    found, box = [], child.parent
    while box is not None:
        found.append(box)
        box = box.parent
    return found


def find_common_box(nodes: Sequence[Node]) -> Box:
    """Return the innermost box that all nodes are in."""
    shared = enclosing(nodes[0])
    for node in nodes[1:]:
        around = set(enclosing(node))
        shared = [box for box in shared if box in around]
    return shared[0]


def pluralize(n: int, one: str, many: str = "") -> str:
    """Return a number with its noun, such as "1 leaf" or "2 leaves"."""
    return f"{n:,} {one if n == 1 else many or one + 's'}"


# ── folding ───────────────────────────────────────────────────────────────────────────────────────


class Folds:
    """Folds boxes, deepest first, then the middle of long ones, until no more than `most` nodes remain."""

    def __init__(self, root: Box, edges: dict[tuple[Node, Node], None], most: int) -> None:
        self.root = root
        self.places: dict[Node, Node] = {}  # node -> the node that replaced it
        self.users: dict[Node, list[Node]] = {}
        for leaf, user in edges:
            if leaf.kind.startswith("leaf"):
                self.users.setdefault(leaf, []).append(user)
        count = sum(1 for _ in root.nodes())
        while count > most:
            boxes = [(len(enclosing(box)), box) for box in root.boxes()]
            deepest = max((depth for depth, _ in boxes), default=0)
            for box in [box for depth, box in boxes if depth == deepest] or [root]:
                short = len(box.children) <= most // 2 or not self.shorten(box, most // 2)
                if short and box.parent is not None:
                    self.fold(box.parent, [box], box.label)
            before, count = count, sum(1 for _ in root.nodes())
            if count == before:
                break

    def place(self, node: Node) -> Node:
        """Return the node that represents a node now."""
        while node in self.places:
            node = self.places[node]
        return node

    def shorten(self, box: Box, most: int) -> bool:
        """Fold the middle of a box, with the leaves that only it uses, to `most` children; False if it cannot be."""
        steps = [child for child in box.children if not is_leaf(child)]
        leaves = [child for child in box.children if isinstance(child, Node) and is_leaf(child)]
        ends = min(most // 2, (len(steps) - 2) // 2)
        while ends > 0:
            middle = steps[ends:-ends]
            inside = set(_nodes(middle))
            along = [leaf for leaf in leaves if all(self.place(user) in inside for user in self.users.get(leaf, ()))]
            if len(box.children) - len(middle) - len(along) < most:
                self.fold(box, [*middle, *along], "…")
                return True
            ends -= 1
        return False

    def fold(self, box: Box, children: Sequence[Node | Box], name: str) -> None:
        """Replace children of a box with one node."""
        inside = list(_nodes(children))
        folded = Node("folded", name, "", "")
        folded.count = sum(node.count for node in inside)
        folded.below = pluralize(folded.count, "operation")
        folded.tip = f"{name}: {folded.below}"
        gone = set(children)
        at = box.children.index(children[0])
        box.children = [child for child in box.children[:at] if child not in gone] + [folded] + [
            child for child in box.children[at:] if child not in gone
        ]  # fmt: skip
        folded.parent = box
        self.places.update((node, folded) for node in inside)


def _nodes(children: Sequence[Node | Box]) -> Iterator[Node]:
    for child in children:
        if isinstance(child, Box):
            yield from child.nodes()
        else:
            yield child


def is_leaf(child: Node | Box) -> bool:
    return isinstance(child, Node) and child.kind.startswith("leaf")
