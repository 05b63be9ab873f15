"""No tenant reaches another one's namespace, whatever it sends."""

from hypothesis import given
from hypothesis import strategies as st

from router.access.tenants import MAX_SALT_CHARS, Tenancy, find_salt_problem, scope_name

TENANCY = Tenancy(b"s" * 32)
names = st.from_regex(r"[A-Za-z0-9._\-]{1,12}", fullmatch=True)
salts = st.one_of(st.none(), st.text(max_size=40))


def normal(said):
    return said or None


@given(a=names, said_a=salts, b=names, said_b=salts)
def test_salts_are_equal_only_for_the_same_tenant_and_word(a, said_a, b, said_b):
    is_same = (a, normal(said_a)) == (b, normal(said_b))
    assert (TENANCY.make_salt(a, said_a) == TENANCY.make_salt(b, said_b)) == is_same


@given(a=names, b=names)
def test_sending_the_salt_of_another_tenant_does_not_make_it(a, b):
    stolen = TENANCY.make_salt(a, None)
    assert TENANCY.make_salt(b, stolen) != stolen


@given(tenant=names)
def test_salts_last_with_the_secret_and_go_with_it(tenant):
    assert Tenancy(b"s" * 32).make_salt(tenant, None) == TENANCY.make_salt(tenant, None)
    assert Tenancy(b"t" * 32).make_salt(tenant, None) != TENANCY.make_salt(tenant, None)


def test_who_has_no_tenant_or_no_secret_is_not_salted():
    assert not TENANCY.isolates("")
    assert TENANCY.isolates("a")
    assert not Tenancy(None).isolates("a")


@given(a=names, b=names, name_a=st.text(max_size=20), name_b=st.text(max_size=20))
def test_names_of_two_tenants_never_meet(a, b, name_a, name_b):
    assert (scope_name(a, name_a) == scope_name(b, name_b)) == ((a, name_a) == (b, name_b))
    assert scope_name("", name_a) == name_a


def test_a_salt_is_text_of_bounded_length():
    assert find_salt_problem(None) is None
    assert find_salt_problem("x" * MAX_SALT_CHARS) is None
    for bad in (["a"], 1, True, "x" * (MAX_SALT_CHARS + 1)):
        assert "at most 1024 characters" in find_salt_problem(bad)
