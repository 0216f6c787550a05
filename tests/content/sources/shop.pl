package Shop::Order;
use strict;
use warnings;

=head1 NAME

sub not_a_function {

=cut

my $count = 0;

sub new {
    my ($class, %given) = @_;
    return bless {%given}, $class;
}

sub price { return $_[0]{number} }

package Shop::Line;

sub total {
    my $text = <<"END";
sub within_a_text {
END
    return length $text;
}

1;
