"""Products, and the slices that fit a GPU together."""

from collections import Counter
from collections.abc import Sequence
from itertools import combinations_with_replacement

import pytest

from partita_planner.mig.errors import BadProductsError, UnknownProductError, UnknownSliceError
from partita_planner.mig.layouts import maximal_layouts
from partita_planner.mig.products import Product, known_products, parse_products

A100 = known_products().product("A100-40GB")
SMALL = """
products:
  - name: tiny
    compute: 3
    memorySlices: 4
    slices:
      - {name: 1g.1gb, compute: 1, size: 1, starts: [0, 1, 2], memory: 1Gi}
      - {name: 2g.2gb, compute: 2, size: 2, starts: [0, 2], memory: 2Gi}
"""


def fits(product: Product, slices: Sequence[str]) -> bool:
    """By trying every start of every slice, without layouts."""

    def place(rest: Sequence[str], taken: frozenset[int]) -> bool:
        if not rest:
            return True
        profile = product.slice(rest[0])
        spans = [frozenset(range(start, start + profile.size)) for start in profile.starts]
        return any(not span & taken and place(rest[1:], taken | span) for span in spans)

    return place(slices, frozenset())


def in_some_layout(product: Product, slices: Sequence[str]) -> bool:
    desired = Counter(slices)
    return any(all(layout.counts.get(n, 0) >= c for n, c in desired.items()) for layout in maximal_layouts(product))


@pytest.mark.parametrize(
    ("slices", "want"),
    [
        pytest.param(
            ["3g.20gb", "3g.20gb", "1g.5gb"], False, id="7 of 7 compute slices, but no memory slice for the 1g"
        ),
        pytest.param(["3g.20gb", "3g.20gb"], True, id="two 3g"),
        pytest.param(["4g.20gb", "3g.20gb"], True, id="4g and 3g"),
        pytest.param(["4g.20gb", "4g.20gb"], False, id="4g begins at 0 only"),
        pytest.param(["2g.10gb"] * 3 + ["1g.5gb"], True, id="three 2g and a 1g"),
        pytest.param(["2g.10gb"] * 4, False, id="2g does not begin at 6"),
        pytest.param(["1g.5gb"] * 7, True, id="seven 1g"),
        pytest.param(["1g.5gb"] * 8, False, id="the eighth memory slice takes no 1g"),
        pytest.param(["1g.10gb"] * 4, True, id="four 1g of double memory"),
        pytest.param(["4g.20gb", "2g.10gb", "1g.5gb"], True, id="4g, 2g and 1g"),
        pytest.param(["7g.40gb"], True, id="the whole GPU"),
        pytest.param(["7g.40gb", "1g.5gb"], False, id="nothing beside the whole GPU"),
    ],
)
def test_placement_table_decides(slices: list[str], want: bool) -> None:
    assert in_some_layout(A100, slices) is want


@pytest.mark.parametrize("product", known_products().products, ids=lambda p: p.name)
def test_layouts_are_exactly_what_fits(product: Product) -> None:
    names = [s.name for s in product.slices]
    for size in range(1, 5):
        for slices in combinations_with_replacement(names, size):
            assert in_some_layout(product, slices) is fits(product, slices), slices


def test_layouts_are_maximal_and_distinct() -> None:
    layouts = maximal_layouts(A100)

    for layout in layouts:
        names = [p.slice for p in layout.placements]
        assert not any(fits(A100, [*names, s.name]) for s in A100.slices)
    assert len({tuple(sorted(layout.counts.items())) for layout in layouts}) == len(layouts)


@pytest.mark.parametrize(
    ("product", "want"),
    [
        pytest.param("A100-40GB", ["1g.5gb", "1g.10gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"], id="A100 40 GB"),
        pytest.param("A100-80GB", ["1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"], id="A100 80 GB"),
        pytest.param("H100-80GB", ["1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"], id="H100 80 GB"),
        pytest.param("H100-94GB", ["1g.12gb", "1g.24gb", "2g.24gb", "3g.47gb", "4g.47gb", "7g.94gb"], id="H100 94 GB"),
        pytest.param("H200-141GB", ["1g.18gb", "1g.35gb", "2g.35gb", "3g.71gb", "4g.71gb", "7g.141gb"], id="H200"),
    ],
)
def test_profiles_are_those_of_the_user_guide(product: str, want: list[str]) -> None:
    """And as many of each fit as "Number of Instances Available" says there."""
    found = known_products().product(product)
    most = [max(layout.counts.get(s.name, 0) for layout in maximal_layouts(found)) for s in found.slices]

    assert [s.name for s in found.slices] == want
    assert most == [7, 4, 3, 2, 1, 1]


def test_profile_is_never_larger_than_its_name_says() -> None:
    for product in known_products().products:
        for s in product.slices:
            assert s.memory.value <= int(s.name.partition(".")[2].removesuffix("gb")) * 2**30


def test_a_file_adds_and_overrides_products() -> None:
    mine = parse_products(SMALL + SMALL.replace("tiny", "A100-40GB").replace("products:\n", ""), "mine.yaml")

    products = known_products().overridden_by(mine)

    assert [s.name for s in products.product("tiny").slices] == ["1g.1gb", "2g.2gb"]
    assert products.product("A100-40GB").compute == 3
    assert products.product("A100-80GB") == known_products().product("A100-80GB")


@pytest.mark.parametrize(
    ("text", "want_message"),
    [
        pytest.param("products: [", "is not YAML", id="not YAML"),
        pytest.param("[]", "not a valid table of MIG products", id="no table"),
        pytest.param("products: []", "at least 1", id="no product"),
        pytest.param(SMALL.replace("starts: [0, 2]", "starts: [0, 3]"), "beyond the GPU's 4", id="a slice too far"),
        pytest.param(SMALL.replace("compute: 2", "compute: 5"), "the GPU has 3", id="too much compute"),
        pytest.param(SMALL.replace("2g.2gb", "1g.1gb"), "two profiles of one name", id="a profile twice"),
        pytest.param(SMALL.replace("2g.2gb", "half"), "name", id="no profile name"),
        pytest.param(SMALL.replace("memory: 1Gi", "memory: much"), "is not a quantity", id="no memory"),
        pytest.param(SMALL + SMALL.replace("products:\n", ""), "given once", id="a product twice"),
    ],
)
def test_bad_table_is_refused(text: str, want_message: str) -> None:
    with pytest.raises(BadProductsError, match=want_message):
        parse_products(text, "mine.yaml")


def test_unknown_names_are_answered_with_those_there_are() -> None:
    with pytest.raises(UnknownProductError, match="known are A100-40GB"):
        known_products().product("V100")
    with pytest.raises(UnknownSliceError, match=r"it has 1g\.5gb"):
        A100.slice("5g.25gb")
