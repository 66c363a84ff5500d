"""Links to inner servers, and the packets that go over them."""
